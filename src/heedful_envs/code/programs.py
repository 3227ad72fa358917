"""From a reply to the program that is run: without its fence, under its starter, among the names that judges import."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from heedful.envs.common import ReadAnswer, read_answer
from heedful.types import Tool
from heedful_envs.code.problems import Problem

LONGEST_PROGRAM = 20_000
"""Characters of an answer."""

Package = Literal["numpy", "scipy", "sortedcontainers", "networkx", "sympy", "more_itertools"]

PRELUDE = """
from typing import *; from string import *; from re import *; from datetime import *; from copy import *
from random import *; from statistics import *; from operator import *; from io import *; from sys import *
from json import *; from math import *; from heapq import *; from bisect import *; from itertools import *
from functools import *; from collections import *; from builtins import *
import bisect, collections, copy, datetime, fractions, functools, heapq, io, itertools, json, math, operator, os, random
import re, statistics, string, sys, time, typing
try: from sortedcontainers import SortedDict, SortedList, SortedSet
except ImportError: pass
try: import numpy as np
except ImportError: pass
class ListNode:
    def __init__(self, val=0, next=None): self.val, self.next = val, next
class TreeNode:
    def __init__(self, val=0, left=None, right=None): self.val, self.left, self.right = val, left, right
sys.setrecursionlimit(50000)
"""
"""What the judges of LiveCodeBench, LeetCode and APPS (`time`, `fractions`, `np`) put before a program.

The function that a problem asks for is removed again (`lockbox.program`), since it must be the program's own.

Deviations: `typing` comes first, so that `Counter` is the class and not its annotation. `time` is the module, not the
class of `datetime`."""

_FENCE = re.compile(
    r"(?:^[ \t]*|^[^\n`]*(?=```py))(`{3,}|~{3,})[ \t]*(\w*)[^\n`]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\1[ \t\n]*\Z|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A block ends at a fence as long as its first, at the end of the text without a line of its own, or nowhere."""


def read_program(reply: str, tools: Sequence[Tool] = ()) -> ReadAnswer:
    """The program of a reply: the answer block (or the call), without a fence around it and its indentation.

    Of several fenced blocks the last one that says Python counts, or else the last one.
    """
    read = read_answer(reply, LONGEST_PROGRAM, tools)
    blocks = [(language.lower(), body) for _, language, body in _FENCE.findall(read.text.replace("\r\n", "\n"))]
    python = [body for language, body in blocks if re.match("py(?!con)", language)] or [body for _, body in blocks]
    if read.fault or not python:
        return replace(read, text=re.sub(r"\A`([^`\n]+)`\Z", r"\1", read.text))
    text = python[-1].rstrip()
    return replace(read, text=textwrap.dedent(text) if text[:1].isspace() else text)


def completed(problem: Problem, program: str) -> str:
    """The program to run. Of a function's body, a method without its class or an expression, the whole."""
    entry, starter = problem.entry, problem.starter
    if not entry or re.search(r"^class Solution\b", program, re.MULTILINE):
        return program
    inner = re.search(rf"^([ \t]+)def {entry}\(\s*self\b", program, re.MULTILINE)
    if inner and not re.search(r"^class ", program, re.MULTILINE):
        program = textwrap.dedent(program if program[:1].isspace() else inner[1] + program)
    methods = re.findall(r"^def (\w+)\(\s*self\b", program, re.MULTILINE)
    if entry in methods:
        own = "".join(f"    {name} = {name}\n" for name in methods)
        return f"{program}\n\nclass Solution:\n{own}\ndel {entry}\n"
    depth = "" if program[:1].isspace() else r"[ \t]*"  # a definition may stand under an if or a try
    if re.search(
        rf"^{depth}(?:(?:async )?def|class) {entry}\b|^{entry}\s*[=:]|\bimport\b.*\b{entry}\b", program, re.MULTILINE
    ):
        # The starter may hold imports and helpers, which a reply leaves out.
        above = starter[: max(0, starter.rfind(f"def {entry}"))] if problem.form == "checker" else ""
        return program if "from __future__" in program else above + program
    if starter:
        return _continued(starter, program)
    return program if problem.form == "checker" else f"def {entry}(x):\n    return ({program})\n"


def _continued(starter: str, program: str) -> str:
    """The starter with a body, whose indentation, or that of its first line alone, may be lost."""
    last = starter.rstrip().splitlines()[-1]
    depth = len(last) - len(last.lstrip()) + (4 if last.rstrip().endswith(":") else 0)
    first, *rest = program.strip("\n").splitlines() or [""]
    depths = [len(line) - len(line.lstrip()) for line in rest if line.strip()]
    if not first[:1].isspace() and depths and min(depths) >= depth and not (first.endswith(":") and depths[0] <= depth):
        first = " " * depth + first
    body = "\n".join([first, *rest])
    # Lines that begin at the margin below an indented body are a program of their own.
    if not first[:1].isspace() or min([depth, *depths]) > 0:
        body = textwrap.indent(textwrap.dedent(body), " " * depth)
    return f"{starter.rstrip()}\n{body}\n"
