"""Chat templates render as transformers renders them, inside a sandbox, with messages checked first."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trtc.errors import EngineError, RequestError
from trtc.runtime.chat import ChatTemplate

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "<b>Grüße</b> & 'quotes'"},
    {"role": "assistant", "content": "  Hi.  "},
    {"role": "user", "content": "Bye"},
]
TOOLS = [
    {"type": "function", "function": {"name": "now", "description": "Zeit & Ort <ü>", "parameters": {"b": 1, "a": 2}}}
]

LLAMA2 = """{% if messages[0]['role'] == 'system' %}
{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}
{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}
{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {% endif %}
    {% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + (system if loop.first and system else '') + message['content'].strip() + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}
{% generation %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endgeneration %}
    {% endif %}
{% endfor %}"""
TOOL_USE = """{%- set ns = namespace(found=false) -%}
{% if tools is not none %}{{ tools | tojson(indent=2) }}
{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{% for m in messages %}{% if m.role == 'system' %}{% set ns.found = true %}{% continue %}{% endif %}
{{ loop.index }}:{{ m.content | trim | upper }}{% if loop.index == 3 %}{% break %}{% endif %}
{% endfor %}{{ ns.found }}{{ dict(a=1).items() | list }}{{ '%s-%d' | format('x', 3) }}
{%- if add_generation_prompt %}GO{% endif %}{% if thinking is defined %}{{ thinking }}{% endif %}"""
MACRO = """{% macro say(m) %}[{{ m['role'] }}|{{ m.get('name', 'none') }}]{% endmacro %}
{% for m in messages | rejectattr('role', 'equalto', 'system') %}{{ say(m) }}{% endfor %}
{{ messages | map(attribute='role') | join(',') }}{{ messages[-1]['content'][::-1] }}{{ undefined_name }}"""


@pytest.mark.parametrize("template", [LLAMA2, TOOL_USE, MACRO])
@pytest.mark.parametrize("generation_prompt", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_templates_render_as_in_transformers(template: str, generation_prompt: bool, tools: Any) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    arguments = {"tools": tools, "thinking": "no"}
    ours = ChatTemplate(template, TOKENS).render(CHAT, add_generation_prompt=generation_prompt, **arguments)
    theirs = render_jinja_template(
        [CHAT], chat_template=template, add_generation_prompt=generation_prompt, **arguments, **TOKENS
    )
    assert ours == theirs[0][0]


def test_date_of_today_is_at_hand() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", ChatTemplate("{{ strftime_now('%Y-%m-%d') }}", {}).render(CHAT))


def test_refusal_of_the_template_is_a_request_error_with_its_words() -> None:
    with pytest.raises(RequestError, match="messages: the model's chat template refuses them: Conversation roles must"):
        ChatTemplate(LLAMA2, TOKENS).render([CHAT[1], CHAT[3]])


@pytest.mark.parametrize(
    "template", ["{{ messages[9].content.x }}", "{{ 1 / 0 }}", "{{ messages + 1 }}", "{{ bos() }}"]
)
def test_template_that_fails_on_the_messages_is_a_request_error(template: str) -> None:
    with pytest.raises(RequestError, match="messages: the model's chat template"):
        ChatTemplate(template, TOKENS).render(CHAT)


@pytest.mark.parametrize("template", ["{% if %}", "{{ x", "{% unknown_tag %}", "{% generation %}"])
def test_template_that_is_not_jinja_is_an_engine_error(template: str) -> None:
    with pytest.raises(EngineError, match=r"chat_template\.jinja is not a valid Jinja template"):
        ChatTemplate(template, {}).render(CHAT)


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append({'role': 'x'}) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].pop('role') }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ strftime_now.__globals__['json'] }}",
        "{{ dict.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace({'__class__': 1}) %}",
        "{{ ('{0.__class__}' | format(1)) }}{{ '{0.__class__.__mro__}'.format(1) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_templates_cannot_leave_the_sandbox(attack: str) -> None:
    with pytest.raises(RequestError, match="messages: the model's chat template"):
        ChatTemplate(attack, TOKENS).render(CHAT)


@pytest.mark.parametrize("attack", ["{{ raise_exception.__globals__ }}", "{{ dict.__base__ }}", "{{ ''.__class__ }}"])
def test_private_attributes_are_undefined(attack: str) -> None:
    assert ChatTemplate(attack, TOKENS).render(CHAT) == ""


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hello", "messages: got str, expected a list"),
        ({"role": "user"}, "messages: got dict, expected a list"),
        (7, "messages: got int, expected a list"),
        ([], "messages: got an empty list"),
        (["hi"], r"messages\[0\]: got str, expected an object with role and content"),
        ([CHAT[0], {"content": "x"}], r"messages\[1\]\.role: got None, expected a name"),
        ([{"role": 3, "content": "x"}], r"messages\[0\]\.role: got 3"),
        ([{"role": "user"}], r"messages\[0\]\.content: got NoneType, expected text"),
        ([{"role": "user", "content": 5}], r"messages\[0\]\.content: got int"),
        ([{"role": "user", "content": [{"type": "image"}]}], r"messages\[0\]\.content\[0\]: got 'image', expected"),
        ([{"role": "user", "content": ["text"]}], r"messages\[0\]\.content\[0\]: got 'str'"),
        ([{"role": "user", "content": "x", "extra": {1, 2}}], r"messages\[0\]: holds a value that JSON cannot express"),
    ],
)
def test_malformed_messages_are_named(messages: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ChatTemplate("{{ messages }}", {}).render(messages)


def test_text_parts_become_one_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert ChatTemplate("{{ messages[0].content }}", {}).render([{"role": "user", "content": parts}]) == "one\ntwo"


def test_assistant_may_call_tools_instead_of_speaking() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "now"}}]}
    assert ChatTemplate("{{ messages[0].tool_calls[0].function.name }}", {}).render([call]) == "now"


def test_callers_messages_are_left_alone() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    ChatTemplate("{{ messages }}", {}).render(messages)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


def test_variables_cannot_replace_the_messages() -> None:
    rendered = ChatTemplate("{{ messages[0].content }}{{ x }}", {}).render(CHAT, x="!")
    assert rendered == "Be brief.!"


def test_live_objects_are_no_template_variables() -> None:
    with pytest.raises(RequestError, match="chat_template_kwargs: holds a value that JSON cannot express"):
        ChatTemplate("{{ x }}", {}).render(CHAT, x=object())
