"""The tokenizer of a seedling: byte-level BPE in which every digit and every grid symbol is a single token.

It is lossless on any text, and `AutoTokenizer` loads the same tokenizer. The folder is of Llama type, because
transformers 5 silently replaces a custom tokenizer in a folder of Qwen2 type.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from heedful.boundary.foreign_text import encodable

PAD, END, SYSTEM, USER, ASSISTANT = "<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}<|system|>{{ message['content'] }}"
    "{% elif message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% else %}<|assistant|>{{ message['content'] }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

IMAGE = "<image>"
_PICTURE_TOKENS = (IMAGE, "<fake_token_around_image>", "<global-img>")
_WITH_PICTURES = CHAT_TEMPLATE.replace(
    "{{ message['content'] }}",
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}",
)

_PIECES = r" ?\|\|| ?[A-Za-z][a-z]*| ?[0-9]|\n| ?[^A-Za-z0-9\s]|\s"


def grow_tokenizer(texts: Iterable[str], vocabulary: int, context: int, tags: Iterable[str]) -> PreTrainedTokenizerFast:
    """Learn the merges from `texts`. `tags` become ordinary single tokens that decoding keeps.

    `vocabulary`: at least `LEAST_VOCABULARY`, for every byte, the tokens of the chat template and the tags.
    """
    plain = list(map(encodable, tags))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = [PAD, END, SYSTEM, USER, ASSISTANT]
    tokenizer.train_from_iterator(
        map(encodable, texts),
        trainers.BpeTrainer(
            vocab_size=vocabulary - len(plain),
            special_tokens=specials,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
            min_frequency=2,
        ),
    )
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in plain])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def add_pictures(tokenizer: PreTrainedTokenizerFast) -> None:
    """Add the tokens that stand around and in the place of a picture, and a chat template that writes them."""
    added = [AddedToken(token, special=True, normalized=False) for token in _PICTURE_TOKENS]
    tokenizer.add_tokens(added, special_tokens=True)
    tokenizer.chat_template = _WITH_PICTURES
