#!/usr/bin/env python3
"""Writes tests/golden/chat_golden.json: conversations as transformers renders them with third-party chat templates.

Needs transformers and the shared data:  python scripts/reference/chat_golden.py ../shared/data
The templates stay in the shared data; the file keeps their names and the texts. An answer is a text, or what the template
raised. tests/golden/chat_template_test.c renders the same.
"""

import datetime
import json
import pathlib
import sys

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

NOW = 1721952000  # 26 July 2024, 00:00 UTC
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def say(*turns):
    return [{"role": role, "content": content} for role, content in turns]


# name, messages, add_generation_prompt, now
CONVERSATIONS = [
    ("user", say(("user", "Hello, who are you?")), True, NOW),
    ("no prompt", say(("user", "Hello")), False, NOW),
    ("system", say(("system", "You are brief."), ("user", "Why?")), True, NOW),
    ("no clock", say(("system", "Be kind."), ("user", "What day is it?")), True, 0),
    (
        "turns",
        say(("system", "S"), ("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four"), ("user", "five")),
        True,
        NOW,
    ),
    ("ends with an answer", say(("user", "1"), ("assistant", "2")), False, NOW),
    ("unicode", say(("system", "Größe"), ("user", "日本語 😀\u200d é\u0301\u00a0"), ("assistant", "ÀÉ\u2028ß")), True, NOW),
    ("empty", say(("system", ""), ("user", ""), ("assistant", ""), ("user", "")), True, NOW),
    ("blanks", say(("system", " \n s\t"), ("user", "\n\n u \u3000"), ("assistant", "\n a \n"), ("user", " \t")), True, NOW),
    ("braces", say(("user", "{{ bos_token }} {% if x %} {# c #} \\n '\""), ("assistant", "</s>{%- raw %}")), True, NOW),
    ("thoughts", say(("user", "u"), ("assistant", "<think>\nhm\n</think>\n\nyes"), ("user", "/no_think more")), True, NOW),
    ("modes", say(("system", "Be short. /no_think"), ("user", "q"), ("assistant", "\n\na")), True, NOW),
    ("two users", say(("user", "a"), ("user", "b")), True, NOW),
    ("assistant first", say(("assistant", "a"), ("user", "b")), True, NOW),
    ("late system", say(("user", "a"), ("system", "b"), ("assistant", "c")), True, NOW),
    ("tool", say(("user", "a"), ("assistant", "b"), ("tool", '{"x": 1.5}'), ("assistant", "c")), True, NOW),
    ("unknown role", say(("user", "a"), ("oracle", "b")), True, NOW),
    ("nothing", [], True, NOW),
]


def render(template, messages, prompt, now):
    compiled = _compile_jinja_template(template)
    scope = dict(compiled.globals)
    scope.pop("strftime_now")
    if now:
        scope["strftime_now"] = lambda format: datetime.datetime.fromtimestamp(now, datetime.timezone.utc).strftime(format)
    template = compiled.environment.from_string(template)
    template.globals = scope
    try:
        return template.render(messages=messages, tools=None, documents=None, add_generation_prompt=prompt, **TOKENS), None
    except jinja2.exceptions.UndefinedError:
        return None, ""
    except jinja2.exceptions.TemplateError as error:
        return None, error.message


def templates(data):
    for path in sorted((data / "vocab/templates").glob("*.jinja")):
        yield path.relative_to(data), path.read_text()
    for path in sorted((data / "tokenizers").glob("*/tokenizer_config.json")):
        template = json.loads(path.read_text()).get("chat_template")
        if template:
            yield path.relative_to(data), template


def answers(template):
    for _, messages, prompt, now in CONVERSATIONS:
        text, error = render(template, messages, prompt, now)
        yield {"text": text} if error is None else {"error": error}


def main():
    data = pathlib.Path(sys.argv[1])
    golden = {
        **TOKENS,
        "conversations": [
            {"name": name, "add_generation_prompt": prompt, "now": now, "messages": messages}
            for name, messages, prompt, now in CONVERSATIONS
        ],
        "templates": [{"file": str(file), "answers": list(answers(template))} for file, template in templates(data)],
    }
    out = pathlib.Path(__file__).parents[2] / "tests/golden/chat_golden.json"
    out.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
