"""Texts of many kinds for tokenizer tests."""

# ruff: noqa: RUF001 (odd characters are the point)
from __future__ import annotations

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure they'll say it's what we've DON'T'd.",
    "Hello,world!Nospace;here:and(there)[too]{yes}<no>",
    "  two leading spaces, three   inside, two trailing  ",
    "tabs\tand\t\ttabs, lines\n\nand\r\nlines\n   indented\n",
    " ",
    "\n\n\n",
    "\u00a0non-breaking\u2003em space\u200bzero width\ufeff",
    "def f(x: int) -> dict[str, int]:\n    return {'a': x ** 2, \"b\": x // 3}  # comment\n",
    "#include <vector>\nint main() { std::vector<int> v{}; for (auto& e : v) ++e; return v.size() != 0; }\n",
    "https://example.com/a/b?c=d&e=%20#frag user@example.org C:\\dir\\file.txt",
    "Grüße aus Köln, señor! Ça va? Łódź, žluťoučký kůň, İstanbul",
    "e\u0301 and \u00e9 are one and two code points; Å is \u212b",
    "Привет, мир! Как дела?",
    "日本語のテキストと中文文本，한국어 문장입니다。",
    "مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก",
    "emoji 😀😃 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 ❤️ 👍🏽 end",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0001f9ea math ∑∫√≠≤ arrows →⇒ box ┌─┐",
    "ALLCAPS CamelCase snake_case kebab-case SCREAMING_SNAKE iPhone eBay",
    "...!!!???---___***///\\\\\\|||~~~```@@@$$$%%%^^^&&&",
    "a\x00b\x07c\x1b[0m control characters \x7f",
    "",
    "x",
    "▁ metaspace ▁▁ in text Ġ and Ċ too",
    "Ⅷ ½ ² are numbers that are not digits",
)
DIGIT_TEXTS = (
    "In 2024, 1234567 people paid $3.50 for 10,000 km at 09:30.",
    "0 00 000 0000 1e-5 0xFF 3.14159 v1.2.3 ٣٤ १२",
)
