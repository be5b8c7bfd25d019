#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Released chat templates (those of --models, which are not committed) over conversations of our own.

Writes tests/golden/chat_templates.json: the conversations, and for each template one XXH3-64 over what transformers renders from
all of them, with the spans of {% generation %} and the messages of errors. With --compare build/test_jinja it writes nothing,
and shows each case in which `test_jinja render` gives something else.

Usage: chat_templates.py [--models $SNUG_MODELS] [--compare build/test_jinja] [PART OF A NAME ...]    (needs transformers, xxhash)
"""
import argparse
import json
import logging
import os
import re
import subprocess
from pathlib import Path

import xxhash
import transformers.utils.chat_template_utils as utils
from jinja import NOW, Clock

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def function(name, description, properties, required, **more):
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters, **more}}


TOOLS = [
    function("get_weather", "Tells the weather of a \"place\" <now>.", {
        "place": {"type": "string", "description": "Name of a town & country"}, "days": {"type": "integer", "enum": [1, 2, 7]},
        "unit": {"type": ["string", "null"], "enum": ["C", "F", None], "default": "C"},
        "tags": {"type": "array", "items": {"type": "string"}}}, ["place"], **{"return": {"type": "string"}}),
    function("add", "Adds.", {"a": {"type": "number"}, "b": {"type": "number"},
                              "opts": {"type": "object", "properties": {"round": {"type": "boolean"}}}}, ["a", "b"]),
]


def call(identity, name, arguments):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def parts(role, text):
    return message(role, [{"type": "text", "text": text}])


SYSTEM = message("system", "You are terse.\nSay \"yes\" or 'no'.")
HELLO = message("user", "  Hello, wörld! <b>&amp;</b> 你好 \n")
HI = message("assistant", "Hi there! \n\n")
QUESTION = message("user", "What is 2+3?")
THOUGHT = message("assistant", "<think>\nTwo and three.\n</think>\n\nIt is 5.")
REASONED = message("assistant", "It is 5.", reasoning_content="Two and three.")
THANKS = message("user", "Thanks")
WEATHER = message("assistant", "Let me see.", tool_calls=[call("call_0001a", "get_weather", {
    "place": "Zürich", "days": 2, "tags": ["a", "b"], "x": None, "ok": True, "f": 1.5})])
TWO_CALLS = message("assistant", "", tool_calls=[call("abcdefghi", "add", {"a": 2, "b": 3.0}),
                                                 call("abcdefghj", "get_weather", {"place": "Bern"})])
ANSWER = message("tool", "{\"t\": 21}", name="get_weather", tool_call_id="call_0001a")
FIVE = message("tool", "5", name="add", tool_call_id="abcdefghi")
RAIN = message("tool", "rain", name="get_weather", tool_call_id="abcdefghj")
LOOK = message("user", [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "what?"},
                        {"type": "audio"}, {"type": "video"}])
CONVERSATIONS = {
    "one": [HELLO], "system": [SYSTEM, HELLO], "turn": [HELLO, HI], "turns": [SYSTEM, HELLO, HI, QUESTION, HI],
    "turns, user": [HELLO, HI, QUESTION, HI, THANKS], "think": [HELLO, HI, QUESTION, THOUGHT],
    "think, user": [HELLO, HI, QUESTION, THOUGHT, THANKS], "reason": [HELLO, HI, QUESTION, REASONED],
    "reason, more": [SYSTEM, QUESTION, REASONED, THANKS, HI],
    "thinking": [QUESTION, message("assistant", "It is 5.", thinking="Two and three."), THANKS],
    "tool": [SYSTEM, QUESTION, WEATHER, ANSWER, HI], "two tools": [QUESTION, TWO_CALLS, FIVE, RAIN, THOUGHT, THANKS],
    "tool without content": [QUESTION, {"role": "assistant", "tool_calls": [call("abcdefghi", "add", {"a": 2, "b": 3})]}, FIVE],
    "tool with text": [QUESTION, message("assistant", None, tool_calls=[call("abcdefghi", "add", "{\"a\": 2}")]), FIVE, HI],
    "tools at the end": [QUESTION, TWO_CALLS],
    "tool after reasoning": [SYSTEM, QUESTION, {**WEATHER, "reasoning_content": "I should look."}, ANSWER, REASONED, THANKS],
    "parts": [parts("system", "Short."), parts("user", "Hello"), parts("assistant", "Hi"), LOOK],
    "parts of a tool": [LOOK, WEATHER, {**ANSWER, "content": [{"type": "text", "text": "21"}]}, parts("assistant", "Warm")],
    "two users": [HELLO, QUESTION], "assistant first": [HI, HELLO], "two systems": [SYSTEM, HELLO, SYSTEM, QUESTION],
    "developer": [message("developer", "Be brief"), HELLO, HI], "odd role": [message("critic", "x"), HELLO],
    "no text": [SYSTEM, message("user", ""), message("assistant", "")], "no content": [{"role": "user"}],
    "ShareGPT": [message("human", "q"), message("gpt", "a")], "number": [message("user", 5)], "empty": [],
}
VARIABLES = {
    "plain": {}, "prompt": {"add_generation_prompt": True}, "tools": {"tools": TOOLS},
    "tools, prompt": {"tools": TOOLS, "add_generation_prompt": True},
    "no thinking": {"enable_thinking": False, "add_generation_prompt": True, "thinking": False},
    "thinking": {"enable_thinking": True, "add_generation_prompt": True, "thinking": True, "reasoning_effort": "high"},
    "documents": {"documents": [{"title": "A", "text": "First text."}, {"title": "B", "text": "Second."}]},
    "date": {"date_string": "26 Jul 2024", "custom_tools": None, "tools_in_user_message": False, "tools": TOOLS},
}


def expected(template, messages, variables):
    """The text with spans in bytes, or the error's message."""
    named = {"tools": None, "documents": None, "add_generation_prompt": False, **SPECIAL, **variables}
    try:
        texts, spans = utils.render_jinja_template([messages], chat_template=template, return_assistant_tokens_mask=True, **named)
    except Exception as error:  # of any kind: a template may raise any of Python's
        return {"error": str(error)}
    text = texts[0]
    return {"text": text, "spans": [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans[0]]}


def comparable(message):
    """What of a message is compared: all of it, unless it would be escaped, or says that Python's stack is full."""
    message = re.sub(r"^template:\d+: ", "", message)
    plain = message.isascii() and message.isprintable() and "\\" not in message
    return message if plain and "recursion" not in message and "nested more than" not in message else ""


def as_bytes(result):
    if "error" in result:
        return b"error\0" + comparable(result["error"]).encode() + b"\0"
    spans = "".join(f"{begin} {end} " for begin, end in result["spans"])
    return result["text"].encode() + b"\0" + spans.encode() + b"\0"


def compare(program, templates, conversations):
    cases = [(name, template, of, which) for name, template in templates for of in conversations for which in VARIABLES]
    lines = [json.dumps({"template": template, "variables": {
        "tools": None, "documents": None, "add_generation_prompt": False, **SPECIAL, **VARIABLES[which],
        "messages": conversations[of]}, "now": NOW}) for _, template, of, which in cases]
    done = subprocess.run([program, "render"], input="\n".join(lines).encode(), stdout=subprocess.PIPE, check=True)
    different = 0
    for (name, template, of, which), line in zip(cases, done.stdout.decode().split("\n")):
        ours, theirs = json.loads(line), expected(template, conversations[of], VARIABLES[which])
        if as_bytes(ours) != as_bytes(theirs):
            different += 1
            print(f"{name}, {of}, {which}:\n  transformers {theirs}\n  snug         {ours}")
    print(len(cases), "cases,", different, "different")


def main():
    root = Path(__file__).parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path(os.environ.get("SNUG_MODELS", "models")))
    parser.add_argument("--compare")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    utils.datetime = Clock
    folder = arguments.models / "tokenizers/templates"
    files = sorted(path for path in folder.rglob("*.jinja") if all(name in str(path) for name in arguments.names))
    templates = [(str(path.relative_to(folder)), path.read_bytes().decode()) for path in files]
    conversations = {name: utils._alias_reasoning_fields(utils._normalize_chat_messages(messages))
                     for name, messages in CONVERSATIONS.items()}
    if arguments.compare:
        compare(arguments.compare, templates, conversations)
        return
    golden = {"now": NOW, "defaults": {"tools": None, "documents": None, "add_generation_prompt": False, **SPECIAL},
              "conversations": list(conversations.values()), "variables": list(VARIABLES.values()), "templates": {}}
    for name, template in templates:
        digest = xxhash.xxh3_64()
        for messages in conversations.values():
            for variables in VARIABLES.values():
                digest.update(as_bytes(expected(template, messages, variables)))
        golden["templates"][name] = [xxhash.xxh3_64_hexdigest(template.encode()), digest.hexdigest()]
    (root / "tests/golden/chat_templates.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n", encoding="utf-8")
    print(len(templates), "templates")


if __name__ == "__main__":
    main()
