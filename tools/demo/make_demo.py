#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the embedded demo: labelled English reviews, plain text, a vocabulary, a small BERT's configuration.

    tools/demo/make_demo.py [--output_dir examples/demo] [--random_labels]

Everything is made here, from the word lists and sentence patterns below; the same call always writes the same bytes.
A pattern is filled for a drawn label: {a+} is an adjective that fits noun a and has the label's polarity, {a-} one of the
opposite polarity. What makes a sentence positive:
  - a plain statement has the polarity of its adjective, whatever its intensity;
  - a negated one ("not rude", "anything but rude", "nobody could call it rude") has the opposite polarity;
  - of two contrasting clauses the one after "but", "yet" or "still" decides, and with "although", "even though",
    "despite" or "even if" the main clause;
  - a comparison is a judgement of what is reviewed: "I have had worse meals" and "few are better" are praise;
  - an adjective counts by what it says of its noun: cold lemonade is good, cold soup is not.
Training and pre-training use TRAIN_PATTERNS, all other files HELD_OUT_PATTERNS: no held-out pattern occurs in training.

--random_labels shuffles the labels within each file and leaves all else as it is: a control that nothing can learn.
"""
import argparse
import collections
import csv
import json
import pathlib
import random
import re

SIZES = {"train": 5600, "validation": 500, "test": 1000, "new": 12, "pretrain": 3500}
SEED = 20
COMMON = 30  # a word seen less often is left to pieces, so that pieces are trained too

# What can be said of a kind of thing: praise, complaint.
ADJECTIVES = {
    "dish": ("delicious fresh tasty crisp warm fragrant tender juicy filling hot",
             "bland soggy stale cold greasy salty overcooked burnt tasteless dry"),
    "drink": ("cold refreshing fresh fragrant strong smooth", "lukewarm weak watery bitter sour flat"),
    "person": ("friendly patient helpful attentive cheerful polite kind quick",
               "rude careless grumpy slow impatient unfriendly clueless bored"),
    "space": ("clean cosy quiet bright spacious tidy airy comfortable cool",
              "dirty cramped noisy gloomy stuffy damp shabby hot dusty"),
    "bed": ("soft comfortable clean warm cosy wide", "lumpy hard damp narrow saggy creaky"),
    "price": ("fair reasonable modest low sensible", "steep outrageous unfair high ridiculous"),
    "story": ("gripping moving clever funny original thrilling charming touching",
              "dull predictable confusing tedious clumsy shallow endless silly"),
    "text": ("clear precise useful simple readable accurate", "vague wrong useless confusing outdated tiny"),
    "part": ("sturdy solid reliable handy light strong firm", "flimsy wobbly fragile loose brittle heavy stiff"),
    "blade": ("sharp precise sturdy thin strong", "blunt rusty flimsy brittle loose"),
    "device": ("quiet fast reliable simple clever quick handy", "noisy slow unreliable complicated awkward faulty weak"),
    "light": ("bright sharp clear large", "dim blurry faint small"),
    "speaker": ("loud clear crisp strong powerful", "tinny weak faint muffled hollow"),
    "ride": ("smooth comfortable scenic relaxing quick punctual predictable",
             "bumpy crowded exhausting late slow tiring delayed"),
    "nature": ("beautiful peaceful green sunny spectacular calm", "muddy littered dreary crowded neglected bare"),
    "show": ("fascinating inspiring lively clever varied memorable", "boring dated lifeless confusing tiny forgettable"),
    "cloth": ("soft warm light elegant comfortable durable", "scratchy thin stiff ugly tight shapeless"),
}
GENERAL = ("great wonderful excellent lovely superb fantastic good brilliant splendid",
           "awful terrible poor bad disappointing dreadful horrible miserable lousy")
COMPARED = ("better nicer finer", "worse poorer weaker")
MADE = ("made up for it|saved the day|won us over|made all the difference",
        "spoiled it all|ruined the day|put us off|let us down")

# Nouns: "~" marks one without article (bread), "*" a plural. Places: what and where. Verdicts: for, against.
Domain = collections.namedtuple("Domain", "kind nouns where aspects openers verdicts")
DOMAINS = [
    Domain("restaurant",
           "bakery|noodle bar|café|fish restaurant|pizzeria|tea room|canteen|diner|bistro|grill",
           "on Mill Street|near the station|behind the church|at the harbour|across the bridge|by the canal",
           {"soup": "dish", "bread~": "dish", "noodles*": "dish", "pie": "dish", "fish~": "dish", "stew": "dish",
            "potatoes*": "dish", "pancakes*": "dish", "lemonade~": "drink", "iced tea~": "drink", "cider~": "drink",
            "waiter": "person", "cook": "person", "staff~": "person", "dining room": "space", "terrace": "space",
            "bill": "price", "prices*": "price"},
           "We had lunch at {thing} {when}.|{who} took us to {thing} {when}.|I ate at {thing} {when}.|"
           "We tried {thing} {when}.",
           ("I would eat there again|we ordered a second helping|I licked the plate clean|we have booked again|"
            "I tell everybody to go there",
            "I will never eat there again|we left half of it on the plate|I went home hungry|we asked for our money back|"
            "I tell everybody to stay away")),
    Domain("hotel",
           "hotel|guest house|hostel|inn|holiday flat|cabin|campsite|lodge",
           "by the lake|in the old town|at the foot of the hill|near the airport|on the coast|above the village",
           {"room": "space", "bathroom": "space", "lobby": "space", "kitchen": "space", "bed": "bed", "mattress": "bed",
            "sofa": "bed", "breakfast~": "dish", "porridge~": "dish", "receptionist": "person", "host": "person",
            "cleaners*": "person", "rate": "price", "garden": "nature", "beach": "nature", "lift": "device",
            "heater": "device"},
           "We stayed at {thing} {when}.|{who} booked {thing} {when}.|I spent three nights at {thing} {when}.|"
           "We slept at {thing} {when}.",
           ("we would stay there again|I slept like a log|we wished we could stay longer|I have booked it for next year|"
            "we did not want to leave",
            "we will never stay there again|I hardly slept at all|we could not wait to leave|I complained at the desk|"
            "we packed our bags a day early")),
    Domain("book",
           "novel|thriller|cookbook|biography|travel guide|comic|detective story|textbook",
           "about the lighthouse|by the young doctor|from the village library|about the old railway|on the top shelf",
           {"plot": "story", "ending": "story", "first chapter": "story", "dialogue~": "story", "hero": "story",
            "jokes*": "story", "twist": "story", "maps*": "text", "instructions*": "text", "explanations*": "text",
            "index": "text", "translation": "text", "price": "price"},
           "I read {thing} {when}.|{who} gave me {thing} {when}.|I borrowed {thing} {when}.|"
           "Our reading circle chose {thing} {when}.",
           ("I read it twice|I could not put it down|I lent it to all my friends|it kept me up all night|"
            "I have ordered the next one",
            "I gave up after fifty pages|I fell asleep over it|I gave it away at once|it was a waste of paper|"
            "I will not read the next one")),
    Domain("tool",
           "drill|kettle|saw|pocket knife|toaster|torch|ladder|garden hose|coffee grinder|hammer",
           "from the corner shop|from the market|with the red handle|in the blue box|from the catalogue",
           {"handle": "part", "blade": "blade", "lid": "part", "hinge": "part", "case": "part", "tip": "blade",
            "screws*": "part", "motor": "device", "timer": "device", "display": "light", "charger": "device",
            "manual": "text", "labels*": "text", "price": "price", "seller": "person"},
           "I bought {thing} {when}.|{who} lent me {thing} {when}.|I ordered {thing} {when}.|"
           "I picked up {thing} {when}.",
           ("I use it every day|it has never let me down|I bought a second one for my father|it was worth every penny|"
            "I would buy it again",
            "I sent it back|it broke within a week|I threw it into the bin|it was a waste of money|"
            "I would not buy it again")),
    Domain("trip",
           "bus tour|train ride|boat trip|night train|ferry crossing|coach trip|cable car ride|bicycle tour",
           "to the coast|across the border|along the river|over the pass|to the islands|through the valley",
           {"crossing": "ride", "journey": "ride", "transfer": "ride", "return leg": "ride", "driver": "person",
            "guide": "person", "crew~": "person", "seats*": "bed", "carriage": "space", "cabin": "space",
            "deck": "space", "ticket": "price", "fare": "price", "scenery~": "nature", "sandwiches*": "dish",
            "beer~": "drink"},
           "We took {thing} {when}.|{who} invited us on {thing} {when}.|I joined {thing} {when}.|"
           "We went on {thing} {when}.",
           ("we would do it again|I took a hundred pictures|we sang all the way home|I have told all my friends about it|"
            "the children want to go again",
            "we will not do it again|I felt sick all day|we turned back halfway|I want my afternoon back|"
            "the children cried all the way")),
    Domain("museum",
           "museum|park|gallery|zoo|castle|exhibition|theatre|botanical garden|aquarium",
           "near the town hall|on the hill|behind the market|at the edge of town|by the river",
           {"exhibits*": "show", "tour": "show", "film": "show", "play": "story", "audio guide": "text",
            "signs*": "text", "lawn": "nature", "paths*": "nature", "pond": "nature", "entrance hall": "space",
            "cafeteria": "space", "guards*": "person", "actors*": "person", "entry fee": "price", "cakes*": "dish",
            "juice~": "drink"},
           "We visited {thing} {when}.|{who} showed us {thing} {when}.|I walked through {thing} {when}.|"
           "Our class went to {thing} {when}.",
           ("we stayed until closing time|I could have spent the whole day there|we bought a yearly pass|"
            "I will bring my cousins next time|we talked about it for days",
            "we left after ten minutes|I would not go back for free|we regretted the long drive|"
            "I will warn my cousins about it|we wanted to forget it at once")),
    Domain("gadget",
           "radio|camera|phone|laptop|printer|alarm clock|vacuum cleaner|fan|record player",
           "from the new shop|with the silver case|from the spring sale|from the catalogue|from the big store",
           {"screen": "light", "pictures*": "light", "keyboard": "device", "battery": "device", "menu": "device",
            "sound~": "speaker", "speakers*": "speaker", "microphone": "speaker", "buttons*": "part", "stand": "part",
            "strap": "part", "case": "part", "price": "price", "handbook": "text", "salesman": "person",
            "repair service": "person"},
           "I got {thing} {when}.|{who} sold me {thing} {when}.|I tested {thing} {when}.|We unpacked {thing} {when}.",
           ("I take it everywhere|it does all that I need|I would not swap it for another|it was the best buy of the year|"
            "my sister wants one too",
            "I returned it the next day|it stopped working after a month|I went back to my old one|"
            "it was the worst buy of the year|my sister laughed at it")),
    Domain("coat",
           "coat|jumper|raincoat|pair of gloves|scarf|jacket|dress|pair of boots",
           "from the tailor|with the green buttons|from the flea market|in the shop window|from the sports shop",
           {"wool~": "cloth", "lining": "cloth", "fabric": "cloth", "sleeves*": "cloth", "collar": "cloth",
            "cut": "cloth", "zip": "part", "buttons*": "part", "seams*": "part", "price": "price", "tailor": "person",
            "fitting room": "space"},
           "I bought {thing} {when}.|{who} gave me {thing} {when}.|I wore {thing} {when}.|I tried on {thing} {when}.",
           ("I wear it all the time|it fits like a glove|I got compliments all day|I bought it in two colours|"
            "it has kept me dry all winter",
            "I gave it to the charity shop|it fell apart in the wash|I felt foolish all day|I want a refund|"
            "it has never left the wardrobe")),
]
WHO = ("my sister|my neighbour|our teacher|my uncle|a friend|my wife|my husband|a colleague|our daughter|my boss|"
       "an old friend|my flatmate").split("|")
WHEN = ("last week|yesterday|last summer|on Sunday|in May|on my birthday|last winter|two weeks ago|on Friday|"
        "in the autumn|over Easter|last month").split("|")
VERY = "very|really|quite|absolutely|rather|so|truly|remarkably|incredibly|pretty".split("|")

# What is said in how many ways: (share, patterns). A leading "+" or "-" keeps a pattern to one label.
TRAIN_PATTERNS = {
    "plain": (12, """
The {a} {a_was} {a+}.
The {a} {a_was} {very} {a+}.
The {a} {a_is} {very} {a+}, and {verdict+}.
The {a} {a_was} {a+} and the {b} {b_was} {b+}.
The {a} {a_was} {a+}, the {b} {b+}.
{opener} The {a} {a_was} {a+}.
{opener} {verdict+}.
{opener} It was {g_art+} {g+} {kind} with {a_art} {a+} {a}.
{opener} I found the {a} {very} {a+}.
{opener} The {a} {a_was} {g+}, so {verdict+}.
I think the {a} {a_is} {a+}.
To my mind the {a} {a_was} {very} {a+}.
To all of us the {a} looked {a+}.
The {a} seemed {a+} to {who}, and {verdict+}.
The {a} and the {b} seemed {g+} to me.
I must say that the {a} {a_is} {a+}.
In short, I would say that the {a} {a_was} {a+}.
{who} and I agree: the {a} {a_was} {very} {a+}.
We all agree that the {a} {a_was} {a+}.
We like to tell {who} how {a+} the {a} {a_was}.
{who} likes to talk about the {a} and how {a+} {a_it} {a_was}.
If I had one word for this {kind}, it would be {g+}.
{who} says that the {a} {a_is} {a+}, and I agree.
Thanks to {who} we know how {a+} the {a} can be.
That {a} looked {a+} and {a_was} {a+}.
{a_art} {a+} {a} and {b_art} {b+} {b}.
Everything was {g+}, above all the {a}.
How {a+} the {a} {a_was}!
What {g_art+} {g+} {kind}!
This {kind} is {g+}.
This is a {kind} with {a_art} {very} {a+} {a}.
{verdict+}, for the {a} {a_was} {very} {a+}.
{verdict+}. What {g_art+} {g+} {kind}!
+The {a} {a_is} as {a+} as ever.
+I wish every {kind} had {a_art} {a+} {a}.
+If you want {a_art} {a+} {a}, this is the {kind} for you.
-The {a} {a_was} too {a+} for {who}.
"""),
    "negated": (7, """
The {a} {a_was} not {a-}.
The {a} {a_was} not {a-} at all.
The {a} {a_isnt} {a-}.
The {a} {a_is} never {a-}, and {verdict+}.
{opener} The {a} {a_was} not {a-}, and the {b} {b_was} {b+}.
{who} and I did not find the {a} {a-}.
I cannot say that the {a} {a_was} {a-}.
Nobody could call the {a} {a-}.
Nobody found the {kind} {g-}, and the {a} {a_was} not {a-} at all.
There was nothing {a-} about the {a}.
There was nothing {g-} about the {a} and the {b}.
We all agree that the {a} {a_isnt} {very} {a-}.
{who} agrees that there was nothing {a-} about the {a}.
Not one of us found the {a} {a-}.
Not even {who} found the {a} {a-}.
Not for a minute did the {a} seem {a-}.
To me the {a} {a_was} not {a-}.
The {a} {a_was} anything but {a-}.
It was anything but {g_art-} {g-} {kind}.
It was far from {g_art-} {g-} {kind}.
This {kind} is not {g-}, and the {a} {a_is} {a+}.
I would never say that the {a} {a_was} {a-}.
I would not say that the {a} {a_was} {very} {a-}.
Never did I see {a_art} {a-} {a} there.
-The {a} {a_was} not {a-} enough for us.
-The {a} should have been {a-}.
-If you want {a_art} {a-} {a}, look for another {kind}.
"""),
    "contrast": (5, """
The {a} {a_was} {a-}, but the {b} {b_was} {b+}.
The {a} {a_was} {a-}, but the {b} {made+}.
The {a} {a_was} {very} {a-}, but {verdict+}.
{opener} The {a} {a_was} {a-}, but {verdict+}.
Although the {a} {a_was} {a-}, the {b} {b_was} {very} {b+}.
Although the {a} {a_was} {a-}, {verdict+}.
The {a} {a_was} {a+}, although the {b} {b_was} {b-}.
The {a} {a_was} {very} {a+}, even though the {b} {b_was} {b-}.
{verdict+}, even though the {a} {a_was} {a-}.
Despite the {a-} {a}, {verdict+}.
The {kind} was {g+} despite the {a-} {a}.
The {a} {a_was} {a-}. Still, {verdict+}.
The {a} looked {a-} at first, but turned out {a+}.
{who} said the {a} would be {a-}, but I found {a_them} {a+}.
I expected {g_art-} {g-} {kind} and got {g_art+} {g+} one.
I was told that the {a} {a_was} {a-}, yet the {a} {a_was} {a+}.
People call the {a} {a-}, but for us {a_it} {a_was} {a+}.
"""),
    "compared": (3, """
The {a} {a_was} {cmp+} than I expected.
The {a} {a_was} much {cmp+} than the {b}.
This {kind} is much {cmp+} than the last one.
I have had far {cmp-} {kinds} than this one.
We have seen {cmp-} {kinds}.
{who} has had {cmp-} {kinds} than this.
Compared with last year, the {a} {a_is} {cmp+}.
No other {kind} in town is {cmp+}.
Few {kinds} in town are {cmp+}.
The {a} could not have been {cmp+}.
There are few {kinds} with {cmp+} {b_things}.
The {a} {a_is} no {cmp-} than last time.
"""),
}

# What a training sentence may begin with.
LEADS = """
{opener}|{opener}|{who} asked me about {thing}.|To be honest,|All in all,|In the end,|As for me,|I must say,|We all agree:|
{who} and I agree:|{who} and I think that|I have to say that|Believe me,|As {who} says,|In a few words:|We noticed that|
Once more,|Well,|Yes,|No,|You know,|On the whole,|It is true:|Let me say this:|Because {who} asked:|I found that
""".replace("\n", "").split("|")

HELD_OUT_PATTERNS = {
    "plain": (10, """
We found the {a} {a+} and the {b} {b+}.
What {a_art} {very} {a+} {a}!
To me the {a} seemed {a+}.
{who} loves to talk about how {a+} the {a} {a_was}, and I agree.
{verdict+}, because the {a} {a_was} {a+}.
With {a_art} {a+} {a} and {b_art} {b+} {b}, this was {g_art+} {g+} {kind}.
If I had to describe the {a} in one word, I would say {a+}.
{opener} {verdict+}, and the {a} {a_was} {very} {a+}.
"""),
    "negated": (5, """
I would not call the {a} {a-}.
Not once did I find the {a} {a-}.
{opener} There was nothing {g-} about it, and the {a} {a_was} not {a-} at all.
{who} and I agree that the {a} {a_was} not {a-}.
We found the {a} anything but {a-}.
I did not see {a_art} {a-} {a} there.
"""),
    "contrast": (5, """
Even though the {a} {a_was} {a-}, {verdict+}.
{verdict+}, although the {a} {a_was} {a-}.
{opener} I thought the {a} {a-} at first, but the {b} {made+}.
Yes, the {a} {a_is} {a-}, but the {b} {b_is} {very} {b+}, and {verdict+}.
Despite {a_art} {a-} {a} the {kind} was {g+}.
People say that the {a} {a_is} {a-}, but to us {a_it} {a_was} {very} {a+}.
"""),
    "compared": (3, """
Few {kinds} are {cmp+} than this one.
No {kind} that I know is {cmp+}.
{who} has seen {cmp-} {kinds}, and so have I.
{opener} It was {cmp+} than the last one, and the {a} {a_was} {a+}.
"""),
}


def words(pair, positive, separator=None):
    return pair[0 if positive else 1].split(separator)


def plural(noun):
    """café, gallery, torch, pair of boots → their plurals."""
    head, _, rest = noun.partition(" of ")
    head = head[:-1] + "ies" if head.endswith("y") else head + ("es" if head.endswith(("s", "x", "ch")) else "s")
    return head + (" of " + rest if rest else "")


def noun_slots(slots, name, marked, kind, positive, rng):
    noun = marked.rstrip("*~")
    many = marked.endswith("*")
    good, bad = rng.choice(words(ADJECTIVES[kind], positive)), rng.choice(words(ADJECTIVES[kind], not positive))
    slots.update({name: noun, name + "+": good, name + "-": bad, name + "_was": "were" if many else "was",
                  name + "_is": "are" if many else "is", name + "_isnt": "aren't" if many else "isn't",
                  name + "_it": "they" if many else "it", name + "_them": "them" if many else "it",
                  name + "_art": "" if marked[-1] in "*~" else "a",
                  name + "_things": noun if marked[-1] in "*~" else plural(noun)})


def tidy(text):
    """Articles, spaces and capitals."""
    text = re.sub(r"\bi\b", "I", re.sub(r"  +", " ", text).strip())
    text = re.sub(r"\b([Aa]) (?=[aeiou])(?!use|uni|one)", r"\1n ", text)
    return re.sub(r"(^|[.!] )([a-zé])", lambda m: m.group(1) + m.group(2).upper(), text)


def fill(pattern, positive, rng):
    domain = rng.choice(DOMAINS)
    (a, a_kind), (b, b_kind) = rng.sample(list(domain.aspects.items()), 2)
    noun = rng.choice(domain.nouns.split("|"))
    slots = {"thing": f"the {noun} {rng.choice(domain.where.split('|'))}", "who": rng.choice(WHO),
             "when": rng.choice(WHEN), "very": rng.choice(VERY), "kind": noun, "kinds": plural(noun)}
    slots["opener"] = rng.choice(domain.openers.split("|")).format(**slots)
    noun_slots(slots, "a", a, a_kind, positive, rng)
    noun_slots(slots, "b", b, b_kind, positive, rng)
    for sign, side in (("+", positive), ("-", not positive)):
        slots["g" + sign] = rng.choice(words(GENERAL, side))
        slots["g_art" + sign] = "a"
        slots["cmp" + sign] = rng.choice(words(COMPARED, side))
        slots["made" + sign] = rng.choice(words(MADE, side, "|"))
        slots["verdict" + sign] = rng.choice(words(domain.verdicts, side, "|"))
    return tidy(re.sub(r"\{([^}]+)\}", lambda m: slots[m.group(1)], pattern))


def draw_pattern(patterns, positive, rng):
    (kind,) = rng.choices(list(patterns), [share for share, _ in patterns.values()])
    fitting = [p for p in patterns[kind][1].strip().split("\n") if p[0] != ("-" if positive else "+")]
    pattern = rng.choice(fitting).lstrip("+-")
    if patterns is TRAIN_PATTERNS and "{opener}" not in pattern and rng.random() < 0.5:
        pattern = f"{rng.choice(LEADS)} {pattern[0].lower()}{pattern[1:]}"
    return pattern


def draw(patterns, count, rng, seen, longer=False):
    """count (sentence, label) pairs, none drawn before; labels in equal numbers. longer: two sentences that agree."""
    rows = []
    while len(rows) < count:
        positive = len(rows) % 2 == 0
        pattern = " ".join(draw_pattern(patterns, positive, rng) for _ in range(2 if longer else 1))
        sentence = fill(pattern, positive, rng)
        if sentence not in seen:
            seen.add(sentence)
            rows.append((sentence, "positive" if positive else "negative"))
    rng.shuffle(rows)
    return rows


def build_vocabulary(sentences):
    """Special tokens; every character that is seen, first and inside a word; words seen often; and the beginnings and
    endings that many words share, so that words that are not listed still fall into few pieces."""
    count = collections.Counter(w for s in sentences for w in re.findall(r"\w+|[^\w\s]", s.lower().replace("é", "e")))
    letters = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789.,:;!?'\"-()&") | {c for w in count for c in w})
    listed = sorted((w for w in count if len(w) > 1 and count[w] >= COMMON), key=lambda w: (-count[w], w))
    pieces = collections.Counter()
    for word in count:
        for cut in range(2, len(word) - 1):
            pieces[word[:cut]] += 1
            pieces["##" + word[cut:]] += 1
    shared = sorted((p for p in pieces if pieces[p] >= 3 and p not in count), key=lambda p: (-pieces[p], p))
    return (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters + ["##" + c for c in letters if c.isalnum()]
            + listed + shared)


def write_rows(path, header, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--output_dir", type=pathlib.Path, default=root / "examples" / "demo")
    parser.add_argument("--random_labels", action="store_true", help="shuffle the labels within each file")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)

    rng, seen, parts = random.Random(SEED), set(), {}
    for name, size in SIZES.items():
        patterns = TRAIN_PATTERNS if name in ("train", "pretrain") else HELD_OUT_PATTERNS
        parts[name] = draw(patterns, size, rng, seen, longer=name == "pretrain")
    for name in ("train", "validation", "test"):
        rows = parts[name]
        if args.random_labels:
            labels = [label for _, label in rows]
            rng.shuffle(labels)
            rows = [(sentence, label) for (sentence, _), label in zip(rows, labels)]
        write_rows(args.output_dir / f"{name}.csv", ("sentence", "label"), rows)
    write_rows(args.output_dir / "new.csv", ("sentence",), [(sentence,) for sentence, _ in parts["new"]])
    pretrain = [sentence for sentence, _ in parts["pretrain"]]
    (args.output_dir / "pretrain.txt").write_text("\n".join(pretrain) + "\n", encoding="utf-8")

    vocabulary = build_vocabulary([sentence for sentence, _ in parts["train"]] + pretrain)
    (args.output_dir / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    write_json(args.output_dir / "tokenizer_config.json",
               {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": None,
                "tokenize_chinese_chars": True, "model_max_length": 128, "pad_token": "[PAD]", "unk_token": "[UNK]",
                "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"})
    write_json(args.output_dir / "config.json",
               {"model_type": "bert", "vocab_size": len(vocabulary), "hidden_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 4, "intermediate_size": 512, "hidden_act": "gelu", "hidden_dropout_prob": 0.05,
                "attention_probs_dropout_prob": 0.05, "max_position_embeddings": 128, "type_vocab_size": 2,
                "initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0})


if __name__ == "__main__":
    main()
