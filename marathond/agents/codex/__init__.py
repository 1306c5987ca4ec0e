"""codex's app-server inside a trial's container, driven from the host.

The client layer, which knows no arm and no gate:

* ``reach``    the way to the control socket, trusting nothing in the container: ``Reach(pid, start_ticks, uid, name)``;
* ``client``   ``connect(reach, sink=…, timeout_s=…) -> CodexClient``: typed requests, a stream of events, counts;
* ``messages`` the requests and answers in use, as types: ``await client.request(TurnStart(…), timeout_s)``; ``notices`` the notifications,
  ``shapes`` what both are made of;
* ``attach``   ``reattach(client, thread_id, goals=…)`` and ``accepted(client, attached, mark, …)``: the rule by which nothing is
  begun twice;
* ``story``    what happened in a thread, put together from events and histories without counting anything twice;
* ``wire``     the frames; ``errors``: what can go wrong, as typed exceptions.

A driver reads::

    client = await connect(Reach(pid, start_ticks, uid), sink=log.write, timeout_s=30)
    ready = await client.request(ThreadStart(cwd="/app"), 30)              # ready.model, .sandbox … are what is in EFFECT
    await client.request(GoalSet(thread_id=ready.thread.id, objective=…, status="active", origin="user"), 30)
    begun = await client.request(TurnStart(thread_id=…, input=[TextInput(text=…)], client_user_message_id=mark), 60)
    async for event in client.events():                                    # in order; ends only by ConnectionLost or ProtocolDrift
        story.hear(event)
        match event.body:
            case OnTurnCompleted(thread_id=ready.thread.id, turn=turn): …  # others' threads are sub-agents'

The server is started detached, ``codex app-server --strict-config --listen unix://PATH`` with any PATH of at most 107 bytes in a folder of
the agent's; it is a link that nobody resolves.  The socket is there after about 0.3 s: until then ``connect``
raises ReachError ``folder_missing``, ``socket_missing`` or ``socket_refused``.
"""
