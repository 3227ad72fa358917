"""Compare expressions by algebra, in a process that can be killed.

A question is answered in about its time limit. A process that hangs or dies costs one question. It is started when a
question first needs it: importing sympy takes a second. The library is math-verify's parser, latex2sympy2_extended.
math-verify's own verdicts are not used: of the pairs in `tests/envs/math/pairs.jsonl` they get one in four wrong.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import resource
import sys
import threading
from functools import lru_cache
from typing import Any

from heedful.envs.math.answers import Judgement, judge
from heedful.envs.math.notation import GREEK
from heedful.guarded import RaisedElsewhere
from heedful.worker import Answer, NotBegun, Worker, WorkerDied, WorkerTimedOut

START_LIMIT = 60.0
"""Seconds until a new process must have loaded the library."""

MOST_MEMORY = 4 * 2**30
"""Bytes of address space of the process. A reply may ask for a number that fills the machine."""

DIGITS = 60
"""Digits to which expressions are evaluated. Equal ones agree in the first 40."""


class Verifier:
    """One worker for any number of threads, which take turns."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Without a worker, as in a forked child: that of its parent is not its own."""
        self._turn = threading.Lock()
        self.worker: Worker | None = None

    def ask(self, right: str, answer: str, seconds: float) -> Judgement:
        """The judgement on an answer. UNDECIDED if there was none in time, or the process died of the question.

        Raises:
            ModuleNotFoundError: the library is not installed.
            RuntimeError: it cannot be loaded.
        """
        question = json.dumps([right, answer]).encode()
        with self._turn:
            while True:
                fresh = self.worker is None
                if self.worker is None:
                    check_installed()
                    self.worker = Worker(load_algebra, loading=START_LIMIT, quiet=True)
                try:
                    return Judgement(self.worker.ask(question, seconds).decode())
                except RaisedElsewhere:
                    return Judgement.UNDECIDED
                except (WorkerDied, WorkerTimedOut):
                    self.worker = None
                    return Judgement.UNDECIDED
                except NotBegun as dead:  # an idle one was killed
                    self.worker = None
                    if fresh:
                        raise RuntimeError(
                            f"math: latex2sympy2_extended was expected to load in {START_LIMIT:g} s in its process, "
                            f"but it {dead}."
                        ) from dead


VERIFIER = Verifier()
"""The one of this process."""

os.register_at_fork(after_in_child=VERIFIER.begin)


def check_installed() -> None:
    """Raise ModuleNotFoundError where the library is not installed. It is not loaded."""
    if importlib.util.find_spec("latex2sympy2_extended") is None:
        raise ModuleNotFoundError(
            "math: answers that take algebra are judged with math-verify's parser, which is not installed: "
            'pip install "heedful[math]", or accept only what is read exactly: --env.algebra false.'
        )


@lru_cache(maxsize=8192)
def verify(right: str, answer: str, seconds: float) -> Judgement:
    """Whether two answers are equal. UNDECIDED if that cannot be told in time. Raises as `Verifier.ask` does."""
    return VERIFIER.ask(right, answer, seconds)


def load_algebra(argument: bytes) -> Answer:
    """Inside the process: the function that answers a pair of texts with a judgement."""
    if sys.platform == "linux":  # elsewhere the limit exists by name only
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        most = MOST_MEMORY if most == resource.RLIM_INFINITY else min(most, MOST_MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def answer(question: bytes) -> bytes:
        return judge(*json.loads(question), algebra=equal).value.encode()

    # Sympy loads much of itself when it is first used; no question should pay for that out of its own time.
    answer(b'["2*x+sin(x)/2", "x+x+sin(x)*0.5"]')
    return answer


def equal(right: str, answer: str, factor: str) -> Judgement:
    """Whether two expressions are equal up to a `factor`: exactly where they are rational, else to 40 digits.

    Expressions with letters are compared at four points. Raises whatever the parser raises.
    """
    import sympy

    sides = _read(right), _read(answer)
    if len({getattr(side, "shape", ()) for side in sides}) > 1:
        return Judgement.WRONG
    pairs = list(zip(*(side if isinstance(side, sympy.MatrixBase) else [side] for side in sides), strict=True))
    if not all(isinstance(entry, sympy.Expr) for pair in pairs for entry in pair):
        raise ValueError("a statement, not an expression")
    letters = sorted(set().union(*(entry.free_symbols for pair in pairs for entry in pair)), key=str)
    ratios = []
    for start, step in ((13, 6), (-11, -4), (17, -12), (52, 31)):
        values = [sympy.Rational(start + step * place, 7) for place in range(len(letters))]
        point = {a: sympy.I if a.name == "i" else value for a, value in zip(letters, values, strict=True)}
        for one, other in ((left.subs(point), right.subs(point)) for left, right in pairs):
            ratio = sympy.Integer(1) if one == other != sympy.nan else one / other
            ratios.append(ratio if ratio.is_Rational else ratio.evalf(DIGITS))
    wanted = sympy.Integer(1) if factor == "one" else ratios[0]
    if not wanted.is_finite or wanted == 0 or (factor == "positive" and not wanted.is_positive):
        return Judgement.WRONG
    near = sympy.Float("1e-40") * abs(wanted)
    same = all(ratio == wanted or (not ratio.is_Rational and abs(ratio - wanted) < near) for ratio in ratios)
    return Judgement.RIGHT if same else Judgement.WRONG


def _read(text: str) -> Any:
    """An expression in the one spelling as sympy's, with decimals as fractions."""
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig

    if re.search(r"\d +\d|['?]", text):
        raise ValueError("two numbers side by side, or a sign that the parser skips")
    if (determinant := _DETERMINANT.fullmatch(text)) and ("vm" in text or text[0] == "|" or "det" in text):
        return _read(f"\\begin{{pmatrix}}{determinant[1]}\\end{{pmatrix}}").det()
    for pattern, replacement in _REWRITES:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"(\d*)\.(\d+)", lambda number: f"(\\frac{{{number[1]}{number[2]}}}{{{10 ** len(number[2])}}})", text)
    for sign, command in _COMMANDS.items():
        text = text.replace(sign, command)
    found = latex2sympy(text, conversion_config=ConversionConfig(lowercase_symbols=False))
    found = found.doit() if hasattr(found, "doit") else found
    return found.as_explicit() if hasattr(found, "as_explicit") else found


_DETERMINANT = re.compile(r"(?:\\det|[|])? *\\begin *\{[vbp]?(?:matrix|array)\}(?: *\{c+\})?(.*)\\end *\{\w+\} *[|]?")
_REWRITES = (
    (r"(\\ln|\\log) *(\d+|[a-z])(?= */ *\\| *\*)", r"\1(\2)"),
    (r"\} *(?=\\begin)", "}*"),
    (r"(?<![A-Za-z\\])d(?= *\\)", "{d}"),  # no differential
    (r"(?<=\d),(?=\d{3}(?!\d))", ""),
    (r"(?<=\d)e([+-]?\d+)", r"*10^{\1}"),
    (r"(?<![\w.)}])(\d+)/(\d+) ", r"\\frac{\1}{\2}"),
    (r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\^\{\d\})?) *(?:(\d+)°|\((\d+)°\)|\{(\d+)°\})", r"\1(\2\3\4*\\pi/180)"),
    (r"(?:[_^]\{(\d+)\}|(?<![\d._])(\d+)) *C *(?:_\{(\d+)\}|(\d+))", r"\\binom{\1\2}{\3\4}"),
    (r"(?<![A-Za-z])C(?:\((\d+), *(\d+)\)|_\{(\d+)\}\^\{(\d+)\})", r"\\binom{\1\3}{\2\4}"),
)
_COMMANDS = {letter: f"\\{name} " for name, letter in GREEK.items()} | {"∞": "\\infty ", "¶": "\\\\ ", "‖": " "}
