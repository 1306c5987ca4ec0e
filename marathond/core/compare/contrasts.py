"""One contrast: the cells of two arms paired, and every test over them.

Owns which test is done when, and the sentences that must stand beside the numbers.  Pure.  Must not know how contrasts were chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from marathond.core.compare.paired import EXACT_AT_MOST, SAME, mean, paired_t, sign_flip, sign_test, signs, wilcoxon
from marathond.core.compare.pairing import Key, Pair, pair, per_task
from marathond.core.compare.result import ContrastResult, Discordance, Metric, MetricContrast, PairedTask, Tasks, TheseTasks
from marathond.core.compare.within import Stratum, cochran_mantel_haenszel, discordance, odds_ratio, stratified_exact
from marathond.core.results import CellResult, Contrast, refused_words

ENOUGH = 6
"""Tasks that must differ before a two-sided exact p can reach .05: 2 (1/2)^5 is .0625, 2 (1/2)^6 is .03125."""
WORDS = {Metric.REWARD: "reward", Metric.PARTIAL: "partial score", Metric.TEST_RATE: "test rate"}


def contrast_result(
    contrast: Contrast, cells_a: Mapping[Key, CellResult], cells_b: Mapping[Key, CellResult], metrics: Sequence[Metric]
) -> ContrastResult:
    """:param metrics: those whose column exists.  Holm's correction is the caller's: it runs over contrasts."""
    found = tuple(_metric(contrast, cells_a, cells_b, metric) for metric in metrics)
    notes = tuple(line for each in found for line in _notes(each))
    return ContrastResult(
        contrast.a,
        contrast.b,
        contrast.declared_at_ms,
        contrast.scores_known,
        found,
        (*_declared(contrast), *_refused(cells_a, cells_b, metrics), *notes, *_people(cells_a, cells_b)),
    )


def _metric(contrast: Contrast, cells_a: Mapping[Key, CellResult], cells_b: Mapping[Key, CellResult], metric: Metric) -> MetricContrast:
    pairing = pair(contrast.a, contrast.b, cells_a, cells_b, metric)
    pairs = pairing.pairs
    if not pairs:
        why = (
            "no cell is valid in both arms"
            if metric is Metric.REWARD
            else f"no cell that is valid in both arms has a {WORDS[metric]} in both"
        )
        return MetricContrast(metric, None, left_out=pairing.left_out, bounds=pairing.bounds, why=why, refused=pairing.refused)
    tasks = per_task(pairs)
    built = [each for each in pairs if not each.build_failed]
    reward = metric is Metric.REWARD
    return MetricContrast(
        metric=metric,
        tasks=(over_tasks := tasks_like_these(tasks)),
        pairs=tasks,
        cells=len(pairs),
        left_out=pairing.left_out,
        bounds=pairing.bounds,
        these_tasks=_these_tasks(contrast, pairs) if reward else None,
        mcnemar=_mcnemar(pairs) if reward else None,
        without_build_failed=tasks_like_these(per_task(built)) if built and len(built) < len(pairs) else None,
        build_failed=len(pairs) - len(built),
        why=_undefined(over_tasks),
        refused=pairing.refused,
    )


def tasks_like_these(pairs: Sequence[PairedTask]) -> Tasks:
    """:param pairs: at least one."""
    differences = [each.difference for each in pairs]
    t, way = paired_t(differences), signs(differences)
    p_sign_flip, exact = sign_flip(differences)
    return Tasks(
        n=len(pairs),
        mean_a=mean([each.mean_a for each in pairs]),
        mean_b=mean([each.mean_b for each in pairs]),
        difference=mean(differences),
        se=t.se,
        t=t.t,
        p_t=t.p,
        interval=t.interval,
        p_sign_flip=p_sign_flip,
        sign_flip_how="exact" if exact else "sampled",
        p_sign_test=sign_test(way.wins, way.losses),
        p_wilcoxon=wilcoxon(differences),
        discordant=way.discordant,
        wins=way.wins,
        losses=way.losses,
        smallest_p=way.smallest_p,
        mde=t.mde,
    )


def _undefined(tasks: Tasks) -> str:
    if tasks.n < 2:
        return "one task alone has no spread: there is neither t nor interval, nor a minimum detectable difference"
    if tasks.se is not None and tasks.se <= SAME:
        by = "are equal in both arms" if tasks.discordant == 0 else f"differ by the same {tasks.difference:+.4g}"
        return f"all {tasks.n} tasks {by}: without a spread there is neither t nor interval, nor a minimum detectable difference"
    return ""


def _binary(pairs: Sequence[Pair]) -> bool:
    return all(value in (0, 1) for each in pairs for value in (each.value_a, each.value_b))


def _these_tasks(contrast: Contrast, pairs: Sequence[Pair]) -> TheseTasks:
    if not _binary(pairs):
        return TheseTasks(None, None, None, 0, "some rewards lie between 0 and 1: they cannot be counted")
    tasks: dict[str, list[Pair]] = {}
    for each in pairs:
        tasks.setdefault(each.task, []).append(each)
    strata = [
        Stratum(int(sum(each.value_a for each in its)), len(its), int(sum(each.value_b for each in its)), len(its))
        for its in tasks.values()
    ]
    informative = sum(each.informative for each in strata)
    ratio, why = odds_ratio(strata), ""
    if not informative:
        why = "no task was solved in some of its trials and not in others: nothing tells the arms apart"
    elif ratio is None:
        why = f"the odds ratio is infinite: no task has a trial that {contrast.b} solved beside one that {contrast.a} did not"
    return TheseTasks(stratified_exact(strata), cochran_mantel_haenszel(strata), ratio, informative, why)


def _mcnemar(pairs: Sequence[Pair]) -> Discordance | None:
    """Of campaigns with one replicate only: replicates of one task are no pairs that are independent of each other."""
    if len({each.task for each in pairs}) < len(pairs) or not _binary(pairs):
        return None
    return discordance([(each.value_a == 1, each.value_b == 1) for each in pairs])


def _declared(contrast: Contrast) -> Iterator[str]:
    if contrast.scores_known:
        known = "1 score was" if contrast.scores_known == 1 else f"{contrast.scores_known} scores were"
        yield f"declared when {known} known: it may have been chosen by what was seen"


def _notes(found: MetricContrast) -> Iterator[str]:
    tasks, word = found.tasks, WORDS[found.metric]
    if tasks is None:
        yield f"{word}: {found.why}"
        return
    if tasks.discordant < ENOUGH:
        differ = "no task differs" if not tasks.discordant else f"{tasks.discordant} of {tasks.n} tasks differ"
        yield (
            f"{word}: {differ}, and fewer than {ENOUGH} discordant tasks can never reach .05: "
            f"the smallest two-sided exact p is {tasks.smallest_p:.4g}"
        )
    if found.why:
        yield f"{word}: {found.why}"
    if tasks.sign_flip_how == "sampled":
        yield f"{word}: {tasks.discordant} tasks differ, more than {EXACT_AT_MOST}: the sign-flip p is sampled, with a fixed seed"
    if found.build_failed:
        beside = "nothing is left without them" if found.without_build_failed is None else "the difference without them stands beside it"
        yield f"{word}: in {found.build_failed} of {found.cells} pairs a build failed, which is the agent's own and counts; {beside}"
    if found.these_tasks is not None and found.these_tasks.why:
        yield f"{word}, these tasks: {found.these_tasks.why}"


def _refused(cells_a: Mapping[Key, CellResult], cells_b: Mapping[Key, CellResult], metrics: Sequence[Metric]) -> Iterator[str]:
    """A value is often refused for how large it is: the tasks that it is missing from are not compared as they would be with it."""
    for metric in metrics:
        if words := refused_words([*cells_a.values(), *cells_b.values()], metric.value):
            yield f"{words}; no difference of these tasks is that of the whole"


def _people(cells_a: Mapping[Key, CellResult], cells_b: Mapping[Key, CellResult]) -> Iterator[str]:
    by_people = sum(cell.by_operator for cells in (cells_a, cells_b) for cell in cells.values() if cell.state == "done")
    if by_people:
        yield f"{by_people} of the rewards {'is' if by_people == 1 else 'are'} a person's word, from a review"
