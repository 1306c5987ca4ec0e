"""Words for the fields of published schemas, where a type says nothing of its own.

Owns the house's vocabulary and its units, which stand last in a name.  One name means one thing here; what means another somewhere says so
in its type.
"""

from __future__ import annotations

_TEXT = """
a: the first arm, by name; of a difference: its value there
absent_images: images that are not on the engine
account: whose requests: agent, judge, gate
ack_reason: why it was acknowledged
acked: whether a person has acknowledged it
acked_by: who acknowledged it; null: nobody
added_arms: arms that are new
added_cells: cells that are new
added_tasks: tasks that are new
after_agent: what happens to processes that the agent detached on purpose
agent: the agent's start and end; null: it was not started
agent_limit: the agent's limit; null: it has none that is known
agents_beside: agents of others that ran on the engine meanwhile; null: not looked at
alive: whether the daemon runs; null: nobody can tell
all_of: share of the tasks of which all k tries succeed
alone: whether nothing else runs beside it
already: who did the same before; null or empty: nobody
answer: what was answered
archive: the file that it was packed into; empty or null: none
archive_id: number of the archive in the ledger
archives: the files that its artifacts were packed into
argv: program and arguments
arm: name of the arm
arm_data: the arm's row as it was submitted
arm_id: number of the arm in the ledger
arms: the arms
arms_only_a: arms that only a has
arms_only_b: arms that only b has
artifacts: files that were exported, with their hashes
at: when, ISO-8601 UTC
at_k: pass@k and pass^k
at_least_one: share of the tasks of which one of k tries succeeds
attempt: which trial of its cell it is, from 1
attempts: trials of the same cell, voided ones included
author: who did it
b: the second arm, by name; of a difference: its value there
basis: what it is made from
batch: what was voided in one go
benchmark: its profile; null or empty: none is named
block: the standing trials of the same task and replicate
block_id: number of the block: one task and one replicate under all arms
boot_id: the host's boot, within which monotonic times can be compared
both: pairs in which both arms solved it
budget: the budget
budget_ended: whether a budget (time, tokens, money, turns) ended the agent, or the share of which one did; null: not known
build_failed: cells whose score is flagged build_failed
by_arm: means by arm, over the cells that count in both
by_ending: scores by how the agent ended
by_task: means by task, over the cells that count in both
campaign: name of the campaign; null: none, or of the whole ledger
campaign_id: number of the campaign in the ledger; null: of the whole ledger
campaigns: the campaigns, or how many there are
cap: most of them at one time
cell_id: number of the cell: 12 is c0012
cells: the cells, or how many there are
cells_a: cells of a
cells_b: cells of b
changed: whether anything was changed
changes: what differs, by column
channel: a way to tell somebody, by name
claim_id: number of the claim by which a trial holds its cell
claimed: cells that a trial holds now
code: stable word for what it is, or why
codex: how codex is driven; null: the arm drives none
column: name of the column
columns: columns of scores: which there are, and why not
compared_with: what the ordinary way, or the earlier public runs, did
complete: whether all of it was counted
concurrency: trials at one time
container: the trial's container; null: none was made
context: what the trial is, and what it holds
context_digest: digest of the folder that its image is built from
contrasts: pairs of arms that are compared
count: how many; the lists beside it may be shorter
counts_pass: whether it used up one of the cell's passes
cpus: cores; null: not declared
cpus_of: cores that may be promised
created: whether the campaign is new
cut: requests whose usage nobody knows, for they broke off
cwd: folder in the container; null: the image's
daemon: the daemon, in words
decided_by: a person or the daemon
decision: what was decided; null: not yet
degraded: why it is degraded, a line each; empty: it is not
delivered: trials to which it was delivered
detail: what there is to know besides
difference: a minus b
differences: in what they differ
digest: hash of its content
digests: how the tasks' contents are checked, in words
disclosure_version: of the disclosures, as stored; 0: none are
disclosures: what a reader must be told
disk: file systems that the daemon watches; null: not looked at lately
docker_id: the engine's id of the container; null: not known
done: cells that have a result
done_a: cells of a that count
done_b: cells of b that count
drive: how codex is driven: turn, goal or wake
dry_run: true: nothing was changed
effort: the model's reasoning effort; null: its own
ended_by: how the agent ended; null: not known, or not yet
engine: name of the engine; of the first screen: what it last said, null: not lately
env: variables, by name
eta: when it will be done
event: what happened
events: what happened, or how many events there are
evidence: what the decision was made from
exclusive_from: since when it runs alone; null: it does not
exec_id: the engine's id of the process; null: not started
exists: whether there is such a column
exit: the command's exit status
exit_code: exit code of the process; null: not known
exits: exit status other than 0 to the cells whose agent ended by itself with it
exit_source: who says so: exec (the engine), file (the container could write it), driver
extractor: version of the extractor that read the score; 0: a person gave it
facts: limits, network, gates: what really applied, and where it comes from
failed: requests that failed
failures: endings of others alike, by code
file: path of the archive
files: how many files, or their names
finding_id: number of the finding
findings: the findings
flags: of the score, each a stable word
folder: where the artifacts lie, below out_dir; null: not exported yet
found: what was found
from: where it is from
from_state: state before
health: healthy, degraded, down or unknown
high: upper end
host: name of the host
hours_at_most: hours, if everything takes as long as it may; null: something has no limit
how: how it came about
id: the engine's id
image: the image's name; null: it is built
image_id: the engine's id of the image; empty: there is none
images: the images
import_id: number of the import
install_check: a command that must succeed before the agent starts
interval: confidence interval; null: cannot be told
k: number of tries
key: the name by which it is known
kind: what kind it is
leaked: networks that could not be removed yet
lease: the network that the trial holds; null: none
lease_id: number of the lease of a network
ledger: path of the ledger's file
ledger_id: id of the ledger: 12 hexadecimal digits
left_out: what was left out
level: confidence level
life: the newest life of the daemon
limit: the limit
limit_loser: the limit that did not apply; empty: there was no other
limit_origin: where the limit comes from
live: trials in work
log: what its driver wrote down, in order
looked_at: what was looked at
low: lower end
made_on: host and time at which it was made
margin: networks left free for others
marks: what it needs that not every host has
mcnemar: McNemar's test over pairs; null: none can be made
mean: mean
mean_a: mean of arm a
mean_b: mean of arm b
means: what it means
median: median
memory_mb_of: MiB of memory that may be promised
metric: reward, partial or test_rate
metrics: by metric
mode: explicit: subnets of ours; auto: the engine's own pools
model: name of the model; null: none is asked, or not known
money: what was spent and what is expected; null: nothing is said of money
mounts: folders and files of the host in the container
n: how many
name: its name
needs_network: whether its containers get a network
neither: pairs in which no arm solved it
network: the network
network_id: the engine's id of the network; null: not made yet
network_name: the network's name
networks: networks in use
networks_cap: most networks of ours at one time
networks_of: networks that may be in use; null: not known
new: what it is now
notes: sentences that must stand beside the numbers
notice_id: number of the notice
odds_ratio: odds of a over odds of b; null: cannot be told
ok: whether all is well
old: what it was before
old_ledger_id: id of the ledger before
only_b: pairs that arm b alone solved
oom_killed: whether the engine killed a process for want of memory; null: not known
open: cells that nothing holds; of findings: how many are open
operation: settings that decide no result
oracle_failures: endings of the task's own solution, by code
order: in which order cells are started
origin: where it comes from
others: how many others
ours: networks of ours
out_dir: folder of the artifacts
outcome: what came of it
p10: 10th percentile
p90: 90th percentile
p_cmh: p by Cochran, Mantel and Haenszel; null: cannot be told
p_exact: exact p, two-sided; null: cannot be told
p_holm: p after Holm's correction over the contrasts; null: none
p_mid: mid-p of the exact test; null: cannot be told
p_sign_flip: p of the sign-flip test; null: cannot be told
p_sign_test: p of the sign test; null: cannot be told
p_t: p by Student's t; null: cannot be told
p_wilcoxon: p by Wilcoxon's test; null: cannot be told
pairs: what was paired
park_code: why it is parked; null: it is not
parked: how many, or which, are parked
parked_arms: cells of single arms that will park
parked_cells: cells that will park
parks: what is parked, and why
partial: partial score, 0 to 1; null: there is none
partial_cells: done cells that have a partial score, which the mean is over
partial_a: mean partial score of a; null: none
partial_b: mean partial score of b; null: none
path: path
phase: what the trial is doing
pid: number of the process
pid_start_ticks: when the process began, in the kernel's ticks since boot; with pid it names one process
place: where it was met
pools: networks, by engine
position: place in the campaign's order
prefix: size of one trial's subnet, as in /28
processes: processes that were alive at the agent's end
profile: by name
project: the compose project that it belongs to; empty: none
provider: the way to the model provider; null: nothing is known of it
prune_id: number of the removal in the ledger
prunes: what of it was removed to make room
range: the range that subnets are cut from
read_only: whether the container may not write there
reason: why, in the words of who did it
reattached: how often a new daemon took it over
receipt: what the agent's own files say of its run; null: there is none
record: the record
refused: what was refused, and why
remove_attempts: how often its removal was tried
replicate: which repetition of the cell, from 1
replicates: repetitions of each task under each arm
request_max_retries: retries of a request
requests: requests to the model
restored: trials that are what they were before the void
retries: retries
review: cells that wait for a person; of a trial: its review
review_code: why it waits for a person; null: it does not
review_id: number of the review
reviews: its reviews
reward: reward, 0 to 1; null: there is none, or it is not known
reward_a: mean reward of a; null: none
reward_b: mean reward of b; null: none
reward_source: file and key that the reward was read from
role: what it is for
round: which round, from 1
route: name of the gateway's route
rows: the rows
rules: the rules of the audit
run: the life itself; null: there was none yet
run_id: number of the daemon's life
score_id: number of the score
score_was_known: whether its score was known when it was withdrawn
scores: its scores, the older ones included
scores_known: scores that the ledger held when it was declared
se: standard error; null: cannot be told
seconds: how long it took, in seconds; null: it did not run
seed: of the order's ties
seen: what was seen
sendings: to whom it went
seq: number in the trial's order of events, from 1
severity: info, warning, error or stop_loss
sha256: SHA-256, hexadecimal
side: whose void: infrastructure or operator
sizes: of each campaign and kind
slots: trials at one time
slots_of: trials that may run at one time
solved: how many were solved
source: where it is from
sources: what is counted by, and whether it is alive
standing: whether it stands
starts: cells that would begin
state: its state
stop_id: number of the stop
stops: what keeps admission closed
stream_max_retries: retries of a stream that broke
streams: answers that are being streamed
subject: what it is about
subnet: the subnet; null: the engine chose it
t: Student's t; null: cannot be told
target: path in the container
task: name of the task
task_data: what the ledger keeps of the task
task_digest: hash of the task's content; null: it could not be read
task_id: number of the task in the ledger
task_path: folder of the task
tasks: the tasks, or how many there are
tasks_only_a: tasks that only a has
tasks_only_b: tasks that only b has
test_rate: share of tests passed, 0 to 1; null: there is none
test_rate_cells: done cells that have a share of tests, which the mean is over
test_rate_a: mean share of tests passed of a; null: none
test_rate_b: mean share of tests passed of b; null: none
tests_passed: tests that passed; null: not told
tests_total: tests there are; null: not told
text: the words
then: what would be in the way then
these_tasks: the estimand "these tasks"; null: none
times: how often it was seen
title: its title
to_state: state after
todo: what a person can do; empty: nothing
todo_id: LoopX's id of it
token: of the claim: only who knows it may write
token_budget: tokens that the goal may use; null: no such limit
tokens: tokens in and out together; null: not known
total: of how many; null: not known
treatment: what all cells share and what is compared
trial: the trial, such as t0871, or what is known of it; null: there is none
trial_id: number of the trial: 871 is t0871
trials: the trials, or how many there are
trials_left_out: older trials that were not looked at
tries: how often it was tried
turns: turns of the model
turned: knobs that marathonctl set turned: they count in place of the configuration's
unarchived: whether somebody said that it may be lost
undone_by: who took it back; null: nobody
undone_reason: why it was taken back
unknown: of how many it is not known
unparked: cells that are open again
unpriced: requests without a price
unseen: what could not be seen
until_ms: until when, in milliseconds since 1970-01-01T00:00:00Z; null: until a person ends it
usage: use of the model, by account and model
used: trials in which it was used
user: user in the container; null: the image's
value: its value
verifications: rounds of the verifier
verifier_limit: the verifier's limit; null: it has none that is known
version: its version
void_code: why it is void; null: it is not
void_id: number of the void
voided: what was voided, or how many
voids: voided trials
waiting: what open cells wait for; null: not known
warnings: what was tolerated in it
what: what it is of, or what happened
where: where, as a path of names
why: why, in words; empty: there is nothing to say
why_down: why the daemon does not run, in words; empty: it does
would_void: trials that would be voided
"""

WORDS = dict(line.split(": ", 1) for line in _TEXT.strip().splitlines())

UNITS = (
    ("_at_ms", "when, in milliseconds since 1970-01-01T00:00:00Z"),
    ("_mono_ms", "by the monotonic clock of the host, in milliseconds; comparable within one boot"),
    ("_ms", "in milliseconds"),
    ("_s", "in seconds"),
    ("_bytes", "in bytes"),
    ("_mb", "in MiB"),
    ("_percent", "in percent"),
    ("_nusd", "in billionths of a dollar"),
    ("_usd", "in dollars"),
    ("_tokens", "number of tokens"),
    ("_hash", "hash, with its kind before it"),
)
_UNIT_WORDS = ("milliseconds", "seconds", "bytes", "MiB", "percent", "dollar", "token", "hash")
INSTANTS = frozenset({"as_of_ms", "at_ms", "created_ms", "limit_from_ms", "now_ms", "oldest_review_ms", "until_ms"})
"""Instants whose names could be durations."""
WORDS |= {
    "at_ms": UNITS[0][1],
    "bytes": "size, in bytes",
    "ms": UNITS[2][1],
    "created_ms": "when it was made, in milliseconds since 1970-01-01T00:00:00Z",
    "now_ms": "when it was looked at, in milliseconds since 1970-01-01T00:00:00Z",
}


def words_of(name: str) -> str:
    """Empty: nothing is known of it."""
    if name in WORDS:
        return WORDS[name]
    suffix, unit = _unit(name)
    return f"{name.removesuffix(suffix).replace('_', ' ')}: {unit}" if unit else ""


def with_unit(name: str, text: str) -> str:
    """A field's own words with the unit that its name tells, where they do not tell it."""
    _, unit = _unit(name)
    if not text or not unit or any(word in text for word in _UNIT_WORDS):
        return text
    return f"{text.rstrip('.')} ({unit})"


def _unit(name: str) -> tuple[str, str]:
    if name in INSTANTS:
        return "_ms", UNITS[0][1].removeprefix("when, ")
    return next(((suffix, unit.removeprefix("when, ")) for suffix, unit in UNITS if name.endswith(suffix)), ("", ""))
