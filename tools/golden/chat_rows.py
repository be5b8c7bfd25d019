#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/chat_rows.json: files of chats, and the rows of causal LM that come from them: their tokens, and which of these
have a loss, by transformers' apply_chat_template() with return_assistant_tokens_mask, cut as TRL's SFTTrainer cuts them. A template
without {% generation %} is compared with the same one that has it.

Usage: chat_rows.py [FILE]    (needs transformers, tokenizers)
"""
import csv
import datetime
import io
import json
import sys
import tempfile
from pathlib import Path

import transformers.utils.chat_template_utils as chat_template_utils
from causal_rows import load, row
from decoding import MODELS, byte_level
from tokenizers import AddedToken

DATE = datetime.datetime(2026, 11, 27)


class Pinned(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


MARKS = "{% generation %}", "{% endgeneration %}"
# {0} and {1} are the marks, or nothing.
CHATML = ("{{% if tools %}}{{{{ tools|tojson }}}}{{% endif %}}{{% for m in messages %}}{{{{ '<s>' + m.role + '\n' }}}}"
          "{{% if m.role == 'assistant' %}}{0}{{{{ m.content + '</s>' + '\n' }}}}{1}{{% else %}}{{{{ m.content + '</s>\n' }}}}{{% endif %}}"
          "{{% endfor %}}{{% if add_generation_prompt %}}{{{{ '<s>assistant\n' }}}}{{% endif %}}")
DATED = ("{{{{ '<s>Today: ' + strftime_now('%d %b %Y') + '\n' }}}}{{% for m in messages %}}{{% if m.role == 'assistant' %}}{{{{ ' A:' }}}}"
         "{0}{{% if thinks and m.thinking %}}{{{{ '(' + m.thinking + ')' }}}}{{% endif %}}{{{{ m.content|trim + eos_token }}}}{1}{{% else %}}"
         "{{{{ ' ' + m.role|upper + ':' + m.content|trim }}}}{{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}{{{{ ' A:' }}}}"
         "{{% endif %}}")

CHATS = [
    [("user", "The quick brown fox"), ("assistant", "jumps, it's 123"), ("user", "why\n\nnot?"), ("assistant", "größer 漢字 \U0001F469")],
    [("system", "be \"brief\"\t\\"), ("user", "a"), ("assistant", "b")],
    [("user", "nothing answers")],
    [("user", "long " * 20), ("assistant", "lost")],
    [("user", "spaces  "), ("assistant", "  cut in the middle " * 6)],
    [("user", "x</s>y<s>"), ("assistant", "<mask></s>")],
]


def messages_of(chat):
    return [{"role": role, "content": content} for role, content in chat]


def chat_row(fast, marked, line, chat, most, only, **variables):
    """None where no token has a loss."""
    found = fast.apply_chat_template(chat, chat_template=marked, tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
                                     **variables)
    ids = found["input_ids"]
    return row(line, ids, found["assistant_masks"] if only else [1] * len(ids), most)


def prompt_row(fast, marked, line, prompt, completion, most, only, answers, **variables):
    """The completion's tokens have a loss: those from where the chat's differ from the prompt's."""
    options = {"chat_template": marked, "tokenize": True, "return_dict": True, **variables}
    asked = fast.apply_chat_template(prompt, add_generation_prompt=True, **options)["input_ids"]
    found = fast.apply_chat_template(prompt + completion, return_assistant_tokens_mask=True, **options)
    ids, said = found["input_ids"], found["assistant_masks"]
    same = next((i for i, (a, b) in enumerate(zip(ids, asked)) if a != b), min(len(ids), len(asked)))
    return row(line, ids, [int((i >= same or not only) and (said[i] or not answers)) for i in range(len(ids))], most)


def text_of_csv(header, rows):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def lines_of(rows):
    return "".join(json.dumps(one) + "\n" for one in rows)


def data(fast, marked):
    """Files of each layout, and what comes from them."""
    found = []

    def add(file, content, rows, **options):
        found.append({"file": file, "content": content, "rows": [one for one in rows if one], "left_out": rows.count(None), **options})

    chats = [messages_of(chat) for chat in CHATS]
    for most, only in ((200, True), (200, False), (40, True)):
        expected = [chat_row(fast, marked, i, chat, most, only) for i, chat in enumerate(chats, 1)]
        options = {"max_length": most, "assistant_only": only}
        add("messages.jsonl", lines_of({"id": i, "messages": chat, "text": "not used"} for i, chat in enumerate(chats)), expected, **options)
        shared = [[{"from": m["role"], "value": m["content"]} for m in chat] for chat in chats]
        add("shared.json", json.dumps({"id": [1] * len(chats), "conversations": shared}, ensure_ascii=False), expected, **options)
        after = [one and [one[0] + 1, *one[1:]] for one in expected]
        add("messages.csv", text_of_csv(["messages", "tools"], [[json.dumps(chat), ""] for chat in chats]), after, **options)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": [1, -2.5, 1e30, True, None, {}, []]}}}]
    thinks = [{"role": "user", "content": "a", "name": None}, {"role": "assistant", "content": "b", "thinking": "deep\n"}]
    add("tools.jsonl", lines_of([{"messages": chats[1], "tools": tools, "chat_template_kwargs": None},
                                 {"messages": thinks, "tools": None, "chat_template_kwargs": {"thinks": True}},
                                 {"messages": chats[1], "tools": json.dumps(tools), "chat_template_kwargs": {"thinks": False}}]),
        [chat_row(fast, marked, 1, chats[1], 200, True, tools=tools),
         chat_row(fast, marked, 2, [{"role": "user", "content": "a"}, thinks[1]], 200, True, thinks=True),
         chat_row(fast, marked, 3, chats[1], 200, True, tools=tools)], max_length=200, assistant_only=True)
    for only, answers, most in ((True, False, 200), (False, False, 200), (True, True, 200), (True, False, 40)):
        pairs = [(chat[:k], chat[k:]) for chat in chats for k in range(1, len(chat))]
        expected = [prompt_row(fast, marked, i, *pair, most, only, answers) for i, pair in enumerate(pairs, 1)]
        add("prompts.jsonl", lines_of({"prompt": a, "completion": b, "text": "not used"} for a, b in pairs), expected, max_length=most,
            completion_only=only, assistant_only=answers)
    alpaca = [("say", "", "ok"), ("add", "1\n2", "3"), ("quote \"\\", "", "")]
    asked = [messages_of([("user", a + ("\n" + b if b else "")), ("assistant", c)]) for a, b, c in alpaca]
    add("alpaca.jsonl", lines_of({"instruction": a, "input": b, "output": c} for a, b, c in alpaca),
        [chat_row(fast, marked, i, chat, 200, True) for i, chat in enumerate(asked, 1)], max_length=200, assistant_only=True)
    add("alpaca.csv", text_of_csv(["instruction", "input", "output"], alpaca[:2]),
        [chat_row(fast, marked, i, chat, 200, False) for i, chat in enumerate(asked[:2], 2)], max_length=200, assistant_only=False)
    return found


def cases():
    for name, template in (("messages in turns", CHATML), ("with a date", DATED)):
        for marks in (MARKS, ("", "")):
            tokenizer = byte_level(MODELS["gpt4"])
            tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<s>", "</s>", "<mask>")])
            with tempfile.TemporaryDirectory() as folder:
                fast, files = load(tokenizer, Path(folder), True)
            files["tokenizer_config.json"]["chat_template"] = template.format(*marks)
            yield {"name": f"{name}{', marked' if marks[0] else ''}", "files": files, "data": data(fast, template.format(*MARKS))}


def main():
    chat_template_utils.datetime = Pinned
    path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "tests/golden/chat_rows.json"
    with open(path, "w") as file:
        json.dump({"cases": list(cases())}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
