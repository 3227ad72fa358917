"""What environments share, and what an environment of your own can use.

Tasks (`task_of`), replies with named actions (`read_reply`) or one answer in free text (`read_answer`), demonstrations
(`played_through`), checks of knobs, foreign text (`harmless`), rows of files (`rows_of`), calls into a
library that may raise anything (`guarded_call`), and two base classes with the knobs, prompts and penalties of the
built-in environments.
"""

from heedful.envs.common.actions import (
    CLOSE_THOUGHT,
    OPEN_THOUGHT,
    SEPARATOR,
    answer_rules,
    cut_at_word,
    fault_line,
    format_reply,
    harmless,
    read_reply,
)
from heedful.envs.common.answers import ReadAnswer, answer_fault_line, free_text_rules, read_answer
from heedful.envs.common.base import (
    BaseEnvironment,
    BaseEpisode,
    Instructions,
    Played,
    SolvableEnvironment,
    Turns,
    check_range,
    remarks,
)
from heedful.envs.common.contract import (
    MOST_ACTIONS,
    MOST_PER_TURN,
    own_environment,
    rightness_of,
    task_of_seed,
    turns_of,
)
from heedful.envs.common.demonstrations import (
    PLAN_SHOWN,
    choose_plan,
    played_through,
    template_thought,
)
from heedful.envs.common.rows import Faulty, Filed, Groups, JsonList, Rows, check_file, rows_of, stamp_of, text_of
from heedful.envs.common.tagged import in_tags
from heedful.envs.common.tasks import TaskStream, check_same_start, evaluation_tasks, split_of, task_of
from heedful.envs.common.tools import ToolEnvironment, text_tool
from heedful.envs.common.wire import read_task, task_tree
from heedful.guarded import Answered, Raised, guarded_call

__all__ = [
    "CLOSE_THOUGHT",
    "MOST_ACTIONS",
    "MOST_PER_TURN",
    "OPEN_THOUGHT",
    "PLAN_SHOWN",
    "SEPARATOR",
    "Answered",
    "BaseEnvironment",
    "BaseEpisode",
    "Faulty",
    "Filed",
    "Groups",
    "Instructions",
    "JsonList",
    "Played",
    "Raised",
    "ReadAnswer",
    "Rows",
    "SolvableEnvironment",
    "TaskStream",
    "ToolEnvironment",
    "Turns",
    "answer_fault_line",
    "answer_rules",
    "check_file",
    "check_range",
    "check_same_start",
    "choose_plan",
    "cut_at_word",
    "evaluation_tasks",
    "fault_line",
    "format_reply",
    "free_text_rules",
    "guarded_call",
    "harmless",
    "in_tags",
    "own_environment",
    "played_through",
    "read_answer",
    "read_reply",
    "read_task",
    "remarks",
    "rightness_of",
    "rows_of",
    "split_of",
    "stamp_of",
    "task_of",
    "task_of_seed",
    "task_tree",
    "template_thought",
    "text_of",
    "text_tool",
    "turns_of",
]
