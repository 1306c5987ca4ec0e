# What it does last: asks once more, then writes back the outcome, spends its slot, and closes its todo, all with the identity of one turn.
cat >/tmp/loopx-ask <<'END'
{{quota}}
END
case $(head -c 2 /tmp/loopx-ask) in '{{') exit 0 ;; esac
# A wake that asked and ended without settling owes its closeout before any later one: its identity is the one to settle with.
[ ! -e /tmp/loopx-first ] || cp /tmp/loopx-first /tmp/loopx-ask
set -e
sh /tmp/loopx-ask >/tmp/loopx-said.json
loopx=$(sed -n 's/^\(\/.*\) quota should-run .*/\1/p' /tmp/loopx-ask)
goal=$(sed -n 's/.*\(--goal-id [^ ]*\).*/\1/p' /tmp/loopx-ask)
agent=$(sed -n 's/.*--agent-id \([^ ]*\).*/\1/p' /tmp/loopx-ask)
can="--available-capability shell --available-capability filesystem_write"
todo=$(grep -o 'todo_[0-9a-f]\{12,\}' /tmp/loopx-said.json | head -1)
turn=$(grep -o '"turn_instance_id":"[^"]*' /tmp/loopx-said.json | head -1 | cut -d'"' -f4)
id=${turn:+--todo-id $todo --turn-instance-id $turn}
$loopx refresh-state $goal --classification validated_progress --delivery-batch-scale implementation \
    --delivery-outcome primary_goal_outcome --delivery-boundary semantic_closeout $id --agent-id "$agent" $can \
    --vision-state no_followup --vision-summary 'The task is done.' --vision-acceptance 'Its checks pass.' >/tmp/loopx-1.json
[ -z "$id" ] || $loopx quota spend-slot $goal --slots 1 --source heartbeat --execute $id --agent-id "$agent" $can >/tmp/loopx-2.json
$loopx task-lease acquire $goal --todo-id "$todo" --owner "$agent" --idempotency-key done >/tmp/loopx-3.json
$loopx todo complete $goal --todo-id "$todo" ${turn:+--turn-instance-id $turn} --agent-id "$agent" --evidence 'its checks pass' \
    --no-follow-up --task-lease-idempotency-key done --task-lease-expected-version 1 >/tmp/loopx-4.json
