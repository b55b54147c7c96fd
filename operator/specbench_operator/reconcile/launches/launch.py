"""One launch judged from both sides. The engine's own story is heard first: a client only sees a closed socket."""

from __future__ import annotations

from dataclasses import replace

from specbench_operator.reconcile.launches.children import Children
from specbench_operator.reconcile.launches.client_side import judge_client
from specbench_operator.reconcile.launches.engine_side import Patience, judge_engine
from specbench_operator.reconcile.launches.further_nodes import judge_further_nodes, taken_from
from specbench_operator.reconcile.launches.judgement import Judgement, Stage, lost, soonest
from specbench_operator.settings import Settings


def judge(children: Children, group: int, patience: Patience, settings: Settings, attempt: int) -> Judgement:
    """Judge the launch of which at least one Job is there."""
    engine, client = children.engine(group, attempt), children.client(group, attempt)
    by_client = judge_client(client, children.pods_of(client), settings, patience)
    if by_client.stage is Stage.FINISHED:
        return by_client
    if engine is None:
        return by_client if by_client.stage is Stage.FAILED else lost("its Job was deleted")
    pods = children.pods_of(engine)
    taken = None if engine.verdict or engine.deleting or engine.ended else taken_from(pods)
    by_engine = taken or judge_engine(engine, pods, patience, client=client)
    if by_engine.stage in (Stage.STARTING, Stage.SERVING):
        by_engine = judge_further_nodes(by_engine, engine, pods, patience, client)
    if by_engine.stage is not Stage.SERVING:
        return by_engine
    if by_client.stage is Stage.FAILED or by_client.hurts:
        return by_client
    look_again_s = soonest(by_engine.look_again_s, by_client.look_again_s)
    message = by_client.message or by_engine.message
    return replace(by_engine, message=message, look_again_s=look_again_s, idle_since=by_client.idle_since)
