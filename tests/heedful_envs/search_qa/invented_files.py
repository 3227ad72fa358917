"""Invented towns and mayors, written as files of each form. `python -m` with a folder writes them.

The files of examples/search_qa are these. No row is from a data set.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

TOWNS = 24
_STARTS = ("Vel", "Bren", "Tas", "Orm", "Quil", "Dra", "Fen", "Gar", "Hol", "Ist", "Jar", "Kel")
_ENDS = ("mora", "hold", "wick", "dale")
_GIVEN = ("Orla", "Pim", "Sefa", "Tor", "Una", "Wim", "Yara", "Zeno")
_FAMILY = ("Quist", "Abel", "Brandt", "Crole", "Dahl", "Eek", "Fons", "Gray", "Holm", "Iver", "Jonk", "Kroon")


def towns() -> list[dict[str, str]]:
    """What is true of each town. All names and years differ."""
    rng = random.Random(16)
    names = rng.sample([start + end for start in _STARTS for end in _ENDS], TOWNS)
    rivers = rng.sample([f"{start}a" for start in (*_STARTS, *(f"Up{each.lower()}" for each in _STARTS))], TOWNS)
    mayors = rng.sample([f"{given} {family}" for given in _GIVEN for family in _FAMILY], TOWNS)
    years = rng.sample(range(1930, 1990), TOWNS)
    return [
        {"town": town, "river": river, "mayor": mayor, "born": str(year)}
        for town, river, mayor, year in zip(names, rivers, mayors, years, strict=True)
    ]


def passages() -> list[tuple[str, str]]:
    """(title, text) of an article on each town and each mayor."""
    found = []
    for each in towns():
        found.append(
            (each["town"], f"{each['town']} is a town on the river {each['river']}. Its mayor is {each['mayor']}.")
        )
        found.append((each["mayor"], f"{each['mayor']} was born in {each['born']} and keeps bees."))
    return found


def questions() -> list[dict[str, Any]]:
    """Two questions on each town, the second of two links, with the titles of the passages that answer them."""
    found: list[dict[str, Any]] = []
    for each in towns():
        river = {"question": f"On which river is {each['town']}?", "golds": [each["river"], f"river {each['river']}"]}
        born = {"question": f"In which year was the mayor of {each['town']} born?", "golds": [each["born"]]}
        found.append({**river, "titles": [each["town"]]})
        found.append({**born, "titles": [each["town"], each["mayor"]]})
    return [{"id": f"invented_{place}", **each} for place, each in enumerate(found)]


def context_of(question: dict[str, Any]) -> list[tuple[str, str]]:
    """Its passages, and three others."""
    rng = random.Random(question["id"])
    gold = [each for each in passages() if each[0] in question["titles"]]
    others = rng.sample([each for each in passages() if each[0] not in question["titles"]], 3)
    mixed = [*gold, *others]
    rng.shuffle(mixed)
    return mixed


def sentences(text: str) -> list[str]:
    return [f"{each}." for each in text.removesuffix(".").split(". ")]


def flashrag() -> list[dict[str, Any]]:
    return [{"id": each["id"], "question": each["question"], "golden_answers": each["golds"]} for each in questions()]


def search_r1() -> list[dict[str, Any]]:
    told = "Answer the given question. You can search. For example, <answer> Beijing </answer>. Question: "
    return [
        {
            "data_source": "invented",
            "prompt": [{"role": "user", "content": f"{told}{each['question']}\n"}],
            "ability": "fact-reasoning",
            "reward_model": {"style": "rule", "ground_truth": {"target": each["golds"]}},
            "extra_info": {"split": "train", "index": place},
        }
        for place, each in enumerate(questions())
    ]


def ragen() -> list[dict[str, Any]]:
    return [
        {"question": each["question"], "ground_truth": each["golds"][0], "data_source": "invented"}
        for each in questions()
    ]


def hotpotqa() -> list[dict[str, Any]]:
    return [
        {
            "_id": each["id"],
            "question": each["question"],
            "answer": each["golds"][0],
            "type": "bridge",
            "level": "easy",
            "supporting_facts": [[title, 0] for title in each["titles"]],
            "context": [[title, sentences(text)] for title, text in context_of(each)],
        }
        for each in questions()
    ]


def hotpotqa_columns() -> list[dict[str, Any]]:
    """As the hub writes it: columns of lists."""
    return [
        {
            "id": row["_id"],
            "question": row["question"],
            "answer": row["answer"],
            "type": row["type"],
            "level": row["level"],
            "supporting_facts": {
                "title": [title for title, _ in row["supporting_facts"]],
                "sent_id": [number for _, number in row["supporting_facts"]],
            },
            "context": {
                "title": [title for title, _ in row["context"]],
                "sentences": [told for _, told in row["context"]],
            },
        }
        for row in hotpotqa()
    ]


def two_wiki() -> list[dict[str, Any]]:
    return [{**row, "evidences": [[row["supporting_facts"][0][0], "mayor", "somebody"]]} for row in hotpotqa()]


def musique() -> list[dict[str, Any]]:
    return [
        {
            "id": f"{len(each['titles'])}hop__{place}",
            "question": each["question"],
            "answer": each["golds"][0],
            "answer_aliases": each["golds"][1:],
            "answerable": True,
            "paragraphs": [
                {"idx": idx, "title": title, "paragraph_text": text, "is_supporting": title in each["titles"]}
                for idx, (title, text) in enumerate(context_of(each))
            ],
            "question_decomposition": [],
        }
        for place, each in enumerate(questions())
    ]


def corpus() -> list[dict[str, Any]]:
    return [{"id": str(place), "contents": f'"{title}"\n{text}'} for place, (title, text) in enumerate(passages())]


LINES = {"corpus.jsonl": corpus, "flashrag.jsonl": flashrag, "musique.jsonl": musique}
LISTS = {"hotpotqa.json": hotpotqa, "2wiki.json": two_wiki}
COLUMNS = {"search_r1.parquet": search_r1, "ragen.parquet": ragen, "hotpotqa.parquet": hotpotqa_columns}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in LINES.items():
        text = "".join(f"{json.dumps(row)}\n" for row in rows())
        (folder / name).write_text(text, encoding="utf-8")
    for name, rows in LISTS.items():
        (folder / name).write_text(json.dumps(rows()), encoding="utf-8")
    for name, rows in COLUMNS.items():
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows()), folder / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
