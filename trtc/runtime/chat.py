"""Chat templates: messages to prompt text, by the Jinja template a checkpoint carries.

Templates come from checkpoints, so they are untrusted: they run in jinja2's immutable sandbox and see only plain data.
The environment offers what Hugging Face's does (``transformers.utils.chat_template_utils``): trimmed blocks, loop
controls, ``{% generation %}``, ``raise_exception``, ``strftime_now`` and a ``tojson`` that does not escape HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trtc.errors import EngineError, RequestError

if TYPE_CHECKING:
    import jinja2

Message = Mapping[str, Any]  # role, content, and what else a template reads (tool_calls, name, ...)


class ChatTemplate:
    """A compiled template. ``special_tokens`` are the names it may use: bos_token, eos_token, ..."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """The prompt text. ``variables`` are further names for the template (tools, documents, enable_thinking, ...).

        Raises RequestError when the messages are malformed or the template refuses them.
        """
        import jinja2

        context = {
            **self._special_tokens,
            **_plain("chat_template_kwargs", variables),
            "messages": check_messages(messages),
            "add_generation_prompt": add_generation_prompt,
        }
        for optional in ("tools", "documents"):
            context.setdefault(optional, None)
        template = self._template
        try:
            return template.render(context)
        except jinja2.TemplateError as error:
            raise RequestError(f"messages: the model's chat template refuses them: {error}") from error
        except Exception as error:  # a template is foreign code
            raise RequestError(f"messages: the model's chat template fails on them: {error}") from error

    @cached_property
    def _template(self) -> jinja2.Template:
        import jinja2

        try:
            return _environment().from_string(self.source)
        except jinja2.TemplateError as error:
            raise EngineError(f"chat_template.jinja is not a valid Jinja template: {error}; replace it") from error


def check_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Plain copies of ``messages`` with text parts joined into one string by newlines.

    Raises RequestError naming the message and field that is malformed.
    """
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise RequestError(f"messages: got {type(messages).__name__}, expected a list of {{role, content}} objects")
    if not messages:
        raise RequestError("messages: got an empty list, expected at least one message")
    return [_check_message(index, message) for index, message in enumerate(messages)]


def _check_message(index: int, message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"messages[{index}]: got {type(message).__name__}, expected an object with role and content")
    plain: dict[str, Any] = _plain(f"messages[{index}]", dict(message))
    role = plain.get("role")
    if not isinstance(role, str) or not role:
        raise RequestError(f"messages[{index}].role: got {role!r}, expected a name such as 'user' or 'assistant'")
    if isinstance(plain.get("content"), list):
        plain["content"] = "\n".join(_text_part(index, at, part) for at, part in enumerate(plain["content"]))
    content = plain.get("content")
    if not isinstance(content, str) and not (content is None and plain.get("tool_calls")):
        raise RequestError(f"messages[{index}].content: got {type(content).__name__}, expected text or text parts")
    return plain


def _text_part(index: int, at: int, part: object) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        text: str = part["text"]
        return text
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise RequestError(f"messages[{index}].content[{at}]: got {kind!r}, expected {{'type': 'text', 'text': ...}}")


def _plain(field: str, value: Any) -> Any:
    """``value`` as JSON types only: a template must not get hold of live Python objects."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{field}: holds a value that JSON cannot express: {error}") from error


def _environment() -> jinja2.Environment:
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """``{% generation %}...{% endgeneration %}`` marks the assistant's words for training; rendered as it is."""

        tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

        def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class PublicNamespace(jinja2.utils.Namespace):
        """Jinja's namespace without underscore names, which would reach Python's internals."""

        def __init__(*args: Any, **attributes: Any) -> None:
            self, *positional = args
            values = dict(*positional, **attributes)
            for name in values:
                _check_public(name)
            jinja2.utils.Namespace.__init__(self, values)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_public(name)
            super().__setitem__(name, value)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=raise_exception, strftime_now=_strftime_now, namespace=PublicNamespace, dict=_make_dict
    )
    return environment


def _check_public(name: object) -> None:
    from jinja2.exceptions import SecurityError

    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace attribute may not start with an underscore: {name!r}")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _make_dict(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return dict(*args, **kwargs)
