"""The rows of the table of coverage: which metrics carry an interval, and the cases in which each is judged."""

from __future__ import annotations

from benchmarks.truth import actions, attribution, correlations, episodes, gradients, luck, studies, thoughts, trends
from benchmarks.truth.channels import HEAD
from benchmarks.truth.simulation import Case, Estimator
from heedful.auditing.scalars.aliases import ALIASES
from heedful.diagnostics.actions.later import LATER_NAMES
from heedful.diagnostics.actions.rightness import PARTS
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig, standard_rules

CASES: dict[str, Case] = {
    case.name: case
    for module in (episodes, luck, studies, thoughts, actions, gradients, trends, correlations, attribution)
    for case in module.CASES
}

_BY_DESIGN = "exact, from the distribution of the tasks"
_AT_N = "expected value at this number of prompts, by integration"
_SUMMED = "sum over types, thoughts and actions"
_EXACT = "exact, from the population"
_CORRELATE = "`python -m research correlate`"
_NORMAL = "exact, from normal distributions"


def _row(label: str, covers: str, read: str, known: str) -> Estimator:
    """`covers` and `read` are names with blanks between them. A form that is read stands for all that it covers."""
    names = tuple(read.split())
    cases = tuple(case for case in CASES.values() if any(name in case.truths for name in names))
    return Estimator(label, tuple(covers.split()), names, known, cases)


def _of(family: str, names: str) -> str:
    return " ".join(f"{family}/{name}" for name in names.split())


_INFORMATION = "information[@<scorer>]/<scope>[/<environment>]"
_RETRIEVAL = "retrieval[@<scorer>]/<scope>[/<environment>]"
_FIRST, _ANY = "information/first_turn", "information/any_turn"
_PARTS = "task task_undivided task_divided kl entropy"
_BUCKETS = ("all", "bucket_1", "bucket_2", "bucket_3")


def _thoughts(label: str, names: str, known: str, read: str = "") -> Estimator:
    read = read or names
    return _row(label, _of(_INFORMATION, names), f"{_of(_FIRST, read)} {_of(_ANY, read)}", known)


def _gradients(label: str, pattern: str, read: str, buckets: tuple[str, ...] = ("all",)) -> Estimator:
    names = " ".join(_of(f"gradient/{bucket}", read) for bucket in buckets)
    known = _EXACT if buckets == ("all",) else "exact, from the kinds of prompts in a bucket"
    return _row(label, f"gradient/<bucket>/{pattern}" if pattern else "", names, known)


def _of_parts(suffix: str) -> str:
    return " ".join(f"{part}_{suffix}" for part in _PARTS.split())


def _episode(names: str, label: str = "") -> Estimator:
    return _row(label or ", ".join(f"`{name}`" for name in names.split()), names, names, _BY_DESIGN)


_EVALUATED = {f"right{part}": f"right{part} worth{part}" for part in PARTS} | {"foreign_lost": "worth_lost"}
"""Name of a metric of a step -> what evaluations read by the same formula."""

ESTIMATORS = (
    _row("`success/rate`", "success/rate success/chosen", "success/rate", _BY_DESIGN),
    _episode("success/any_of_group"),
    _episode("format/valid_rate format/closed_rate"),
    _episode("grounding/oscillation_rate"),
    _episode("success/progress"),
    _row(
        "`reward/mean`, `reward/<component>`",
        "reward/mean reward/<component>",
        "reward/mean reward/outcome",
        _BY_DESIGN,
    ),
    _episode("length/turns"),
    _row(
        "`length/reasoning_tokens`, `information/.../thought_tokens`",
        f"length/reasoning_tokens {_INFORMATION}/thought_tokens",
        "length/reasoning_tokens",
        _BY_DESIGN,
    ),
    _episode("length/response_tokens"),
    _episode("format/trailing_tokens"),
    _episode("policy/entropy_per_token"),
    _episode("policy/thought_entropy_per_token"),
    _episode("policy/answer_entropy_per_token"),
    _episode("policy/solved_entropy_per_token"),
    _episode("text/distinct_thoughts grounding/strategy_entropy grounding/distinct_strategies"),
    _episode("signal/reward_std"),
    _episode("signal/reward_variance"),
    _row(
        "`signal/luck_share`, `_kept`",
        "signal/luck_share signal/luck_share_kept",
        "signal/luck_share signal/luck_share_kept",
        "exact, from the chances of each sequence of replies",
    ),
    _row(
        "`eval/<split>/sampled/success`, its `any_of_group`, `valid_rate` and `closed_rate`",
        _of("eval/<split>/sampled", "success any_of_group valid_rate closed_rate"),
        "eval/val/sampled/success",
        _BY_DESIGN,
    ),
    _row(
        "Wilson's interval of one trial for each task: greedy, random and fixed success, forced thoughts, `check-env`",
        "eval/<split>/greedy/success eval/<split>/random/success eval/<split>/fixed/success forced/<kind>/success",
        "eval/val/greedy/success",
        "the rate itself",
    ),
    _row("`eval/<split>/sampled/turns`", "eval/<split>/sampled/turns", "length/turns", _BY_DESIGN),
    _row("`gain/<kind>`", "gain/<kind>", "gain/sampled", "the mean gain of the tasks"),
    _row(
        "`mi`, at this number of prompts",
        f"{_INFORMATION}/mi",
        f"{_FIRST}/mi {_ANY}/mi",
        _AT_N,
    ),
    _row(
        "`mi`, as the information of all prompts",
        f"{_INFORMATION}/mi",
        f"{_FIRST}/mi#population",
        "by construction",
    ),
    _thoughts("`mi_loo`", "mi_loo", _AT_N),
    _thoughts("`mi_per_token`", "mi_per_token", _AT_N),
    _thoughts("`mi_tempered`", "mi_tempered", _AT_N),
    _thoughts("`mi_head_<k>`", "mi_head_<k>", _AT_N, f"mi_head_{HEAD}"),
    _thoughts("`gap_per_token`, `gap`", "gap_per_token gap", "by construction", "gap_per_token"),
    _thoughts(
        "`entropy_conditional`, `_per_token`",
        "entropy_conditional entropy_conditional_per_token",
        "by construction",
    ),
    _thoughts("`entropy_marginal`, `_per_token`", "entropy_marginal entropy_marginal_per_token", _AT_N),
    _thoughts("`zscore`, `zscore_ema`", "zscore zscore_ema", _AT_N),
    _thoughts("`zscore_tempered`, `zscore_ema_tempered`", "zscore_tempered zscore_ema_tempered", _AT_N),
    _row(
        "`retrieval/.../accuracy`, `accuracy@<k>`",
        _of(_RETRIEVAL, "accuracy accuracy@<k>"),
        _of("retrieval/first_turn", "accuracy accuracy@2 accuracy@4 accuracy@8"),
        "expected value at this number of prompts, exact or by integration",
    ),
    _row(
        "`retrieval/.../accuracy_2way`, `_8way`",
        _of(_RETRIEVAL, "accuracy_2way accuracy_8way"),
        f"{_of('retrieval/first_turn', 'accuracy_2way accuracy_8way')} retrieval/any_turn/accuracy_2way",
        "exact or by integration",
    ),
    *(
        _row(f"`{name}`", name, name, f"thoughts without any information: {chance}")
        for name, chance in (("text/judge_accuracy", "1/N"), ("text/judge_accuracy_8way", "1/8"))
    ),
    _row(
        "`grounding/image_share`",
        "grounding[@<scorer>][/<environment>]/image_share",
        "grounding/image_share",
        "exact, from the bits that picture and text tell",
    ),
    _row("`text/template_share`", "text/template_share", "text/template_share", "exact, from the share of templates"),
    _row(
        "`input_to_action`",
        "grounding[/<environment>]/input_to_action",
        "grounding/input_to_action",
        "I(X;A) over all prompts, by construction",
    ),
    *(
        _row(
            f"`{name}`",
            f"grounding[@<scorer>][/<environment>]/{name}"
            + (f" {_of('eval/<split>/<kind>', _EVALUATED[name])}" if name in _EVALUATED else ""),
            f"grounding/{name}",
            _SUMMED,
        )
        for name in (
            "reasoning_to_action",
            "thought_influence",
            "foreign_lost",
            *(f"{label}{part}" for label in ("right", "agreed") for part in PARTS),
            *LATER_NAMES,
        )
    ),
    _gradients("`<part>_signal2`, all groups", "<part>_signal2", _of_parts("signal2")),
    _gradients("`<part>_noise2`, all groups", "<part>_noise2", _of_parts("noise2")),
    _gradients("`snr`", "snr", "snr"),
    _gradients("`<part>_prompt_signal2`", "<part>_prompt_signal2", "task_prompt_signal2 task_undivided_prompt_signal2"),
    _gradients("`<part>_norm`", "<part>_norm", _of_parts("norm")),
    _gradients("`<regulariser>_weighted_norm`", "<regulariser>_weighted_norm", "kl_weighted_norm"),
    _gradients("`<part>_group_norm`, all groups", "<part>_group_norm", _of_parts("group_norm")),
    _gradients("`cosine_<p>_<q>`", "cosine_<p>_<q>", "cosine_task_kl cosine_task_entropy cosine_kl_entropy"),
    _gradients("`bound_tightness`", "bound_tightness", "bound_tightness"),
    _gradients("`bound_tightness_prompt`", "bound_tightness_prompt", "bound_tightness_prompt"),
    _gradients("`bound_tightness2_expected`", "bound_tightness2_expected", "bound_tightness2_expected"),
    _gradients("`reward_variance`, all groups and buckets", "reward_variance", "reward_variance", _BUCKETS),
    _gradients("`sorted_variance`, buckets", "sorted_variance", "sorted_variance", _BUCKETS[1:]),
    _gradients("`<part>_group_norm`, buckets", "", "task_group_norm", _BUCKETS[1:]),
    _gradients("`<part>_signal2`, buckets", "", "task_signal2", _BUCKETS[1:]),
    _row(
        "`<part>_trend`, `task_undivided_trend_over_<regulariser>`",
        "gradient/<bucket>/<part>_trend gradient/<bucket>/task_undivided_trend_over_<regulariser>",
        _of("gradient/all", "task_undivided_trend kl_trend task_undivided_trend_over_kl"),
        "exact, from the kinds of groups",
    ),
    *(
        _row(
            f"`attribution/{reading}/...`, {label}",
            f"attribution/<read>/{pattern}" if reading == "gap" else "",
            " ".join(f"attribution/{reading}/{part}" for part in parts.split()),
            "sum over kinds of prompts and thoughts"
            + (", finite differences" if pattern in ("<term>", "total") else ""),
        )
        for reading in ("gap", "mi", "thought_entropy", "success", "right_by_thought")
        for label, pattern, parts in (
            ("parts", "<term>", "solved_varied fluency_constant entropy"),
            ("total", "total", "total"),
            ("measured", "measured", "measured"),
            ("before", "before", "before"),
        )
    ),
    _row("studies: mean over seeds", "", "mean_over_seeds", "mean of the population of runs"),
    _row("studies: difference of two arms, paired by seed", "", "difference", "0: both arms are alike"),
    _row("studies: gain over tasks", "", "gain_over_tasks", "the mean gain of the tasks"),
    _row("studies: counts (Clopper and Pearson)", "", "count", "the rate itself"),
    _row("studies: area under a ROC curve", "", "area", "exact, from two normal distributions"),
    *(
        _row(
            f"`python -m research correlate`: {view}, {method.capitalize()}",
            "",
            correlations.named(method, view),
            _NORMAL,
        )
        for method in ("pearson", "spearman")
        for view in ("all", "within runs", "beyond the course", "between runs", "between runs of a seed")
    ),
    *(
        _row(f"{_CORRELATE}: {view}, Pearson", "", correlations.named("pearson", view), _NORMAL)
        for view in ("next, within runs", "next given now")
    ),
)

NO_INTERVAL: dict[str, str] = {
    "a bound, a chance or a count, known without error": (
        f"{_of(_INFORMATION, 'mi_ceiling n_reaching_<k> mi_saturated')} {_of(_RETRIEVAL, 'chance chance@<k>')} "
        "eval/<split>/best/success text/judge_chance grounding[@<scorer>][/<environment>]/reasoning_to_action_ceiling"
    ),
    "a p-value: its level is in docs/diagnostics.md": (f"{_RETRIEVAL}/p_value"),
    "a label or an alarm: its false alarms are in docs/results/collapse.md": (
        "regime[@<scorer>]/<scope>[/<environment>] filter/refill "
        + _of(
            "alarm", "template_collapse low_entropy_collapse noise_collapse format_collapse entropy_gaming entropy_rise"
        )
        + " "
        + _of("alarm", "thought_bypassed input_blind oscillation starvation reward_blind success_drop")
        + " alarm/picture_ignored alarm/action_uninformed alarm/shaping_dominates alarm/unpaid_tasks"
    ),
    "an alarm of an audit: its false alarms are in docs/results/watch.md": " ".join(
        f"alarm/{rule.name}" for rule in logged_rules(AlarmConfig())[len(standard_rules(AlarmConfig())) :]
    ),
    "a ratio beside its two intervals": "attribution/<read>/explained",
    "a number of the trainer's own; `--validation-tasks` gives its validation score Wilson's interval": (
        " ".join([*ALIASES, "trainer/not_finite"])
    ),
    "a fact about the step's own groups": (
        _of("signal", "variance_dispersion mixed solved unpaid failed stale")
        + " "
        + _of("filter", "kept_ratio kept_groups mass_kept kept_without_signal dropped/<reason> empty draws")
        + " "
        + _of("filter", "collected_groups starved_tasks longest_skip readmitted least_members most_members")
        + " "
        + _of("treat", "unpaid skipped helped turns replayed replay_age replay_ratio")
    ),
    "a fact about the pool's own episodes; a study gives its interval over seeds, which have pools of their own": (
        _of("ranking", "reward_variance mean constant half_spearman group_spearman room same_part")
        + " "
        + _of("ranking", "part_<k>/reward_variance part_<k>/mean part_<k>/hard")
    ),
    "a fact about the step's own update, or its cost": (
        "sampler/probe_error "
        + _of("sampling/sampling_logp_difference", "mean max share")
        + " "
        + _of("policy", "loss gradient_norm learning_rate clip_fraction kl_to_sampler logprob_error kl_to_reference")
        + " "
        + _of("policy", "entropy_coefficient importance_truncated importance_masked explained_variance")
        + " "
        + _of("policy", "importance_kl importance_ess advantage_without_outcome")
        + " "
        + _of("critic", "loss gradient_norm clip_fraction value_mean return_mean")
        + " tokens/<stage> time/<stage> time/cpu "
        + _of("cost[/<environment>]", "diagnosis_share diagnosis_prompts diagnosis_thoughts")
    ),
}
"""Reason -> patterns of the catalogue whose metrics never carry an interval."""
