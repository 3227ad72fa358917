"""What environments share, and what an environment of your own can use.

Tasks (`task_of`), replies with named actions (`read_reply`) or one answer in free text (`read_answer`), demonstrations
(`played_through`), checks of knobs, and two base classes with the knobs, prompts and penalties of the built-in ones.
"""

from heedful.envs.common.actions import actions_of, answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.answers import answer_fault_line, free_text_rules, read_answer
from heedful.envs.common.base import BaseEnvironment, BaseEpisode, Played, SolvableEnvironment, remarks
from heedful.envs.common.demonstrations import choose_plan, played_through, template_thought
from heedful.envs.common.english import template_in, wording
from heedful.envs.common.knobs import check_choice, check_range, check_share
from heedful.envs.common.tasks import TaskStream, check_same_start, evaluation_tasks, split_of, task_of
from heedful.envs.common.tools import ToolEnvironment, in_form, text_tool

__all__ = [
    "BaseEnvironment",
    "BaseEpisode",
    "Played",
    "SolvableEnvironment",
    "TaskStream",
    "ToolEnvironment",
    "actions_of",
    "answer_fault_line",
    "answer_rules",
    "check_choice",
    "check_range",
    "check_same_start",
    "check_share",
    "choose_plan",
    "evaluation_tasks",
    "fault_line",
    "format_reply",
    "free_text_rules",
    "in_form",
    "played_through",
    "read_answer",
    "read_reply",
    "remarks",
    "split_of",
    "task_of",
    "template_in",
    "template_thought",
    "text_tool",
    "wording",
]
