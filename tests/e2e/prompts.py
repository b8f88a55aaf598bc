"""Prompts of different kinds for the demo model."""

LONG = " ".join(f"Item {number}: the river bends {number % 7 + 1} times before the mill." for number in range(1, 16))

PROMPTS: dict[str, str] = {
    "fact": "The capital of France is",
    "chat": "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "chat with system": "<|im_start|>system\nAnswer in one word.<|im_end|>\n<|im_start|>user\nWhat colour is the sky?"
    "<|im_end|>\n<|im_start|>assistant\n",
    "story": "Once upon a time, in a village by the sea, there lived",
    "python": "def fibonacci(n):\n    if n < 2:\n",
    "javascript": "function reverse(text) {\n  return",
    "json": '{"name": "Ada Lovelace", "born": 1815, "occupation": "',
    "html": "<ul>\n  <li>Apples</li>\n  <li>",
    "arithmetic": "12 + 30 = 42\n7 + 8 = 15\n20 + 22 =",
    "sequence": "1, 2, 3, 5, 8, 13, 21,",
    "list": "Three things to pack for a hike:\n1.",
    "german": "Die Hauptstadt von Deutschland ist",
    "french": "Il était une fois une petite fille qui",
    "chinese": "中国的首都是",
    "emoji": "I love pizza 🍕 and",
    "letter": "Dear Ms. Alvarez,\n\nThank you for your order of 12 March.",
    "capitals": "THE QUICK BROWN FOX JUMPS OVER",
    "one token": "The",
    "spaces": "a    b    c    d    ",
    "long": LONG,
}
