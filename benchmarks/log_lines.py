"""What the lines of a cuzk daemon's log look like: their words, their fields and their colours.

The texts are `str.format` templates (hence the doubled braces) without the timestamp of tracing lines.
"""

import re
from typing import NamedTuple

# What is printed about one partition. `@ name +us` gives the instant (a key of what prove() returns) of the
# lines below it and the microsecond in that millisecond; lines of one instant are 10 us apart, which leaves
# room for the up to 9 us that tell calls apart. The microseconds settle who comes first when instants fall
# into the same millisecond: unlock before the next worker's lock, return before the same worker's pickup.
PARTITION_LINES = r"""
@ synth_start +900
TIMELINE,{offset_ms},SYNTH_START,{job},partition={partition}
@ synth_end +10
 INFO synthesize_partition{{job_id="{job}" partition={partition}}}: cuzk_core::pipeline: \
partition synthesis complete partition={partition} synth_ms={synth_ms} is_pinned=false
TIMELINE,{offset_ms},SYNTH_END,{job},partition={partition},synth_ms={synth_ms}
 INFO cuzk_core::engine: partition synthesis complete, pushing to GPU queue \
job_id={job} partition={partition} synth_ms={synth_ms}
TIMELINE,{offset_ms},GPU_QUEUE,{job},partition={partition}
@ pickup +700
TIMELINE,{offset_ms},GPU_PICKUP,{job},worker={worker},partition={partition}
@ gpu_start +710
 INFO gpu_worker{{worker_id={worker} gpu={gpu} job_id={job} proof_kind=porep-c2 batch_size=1 \
partition=Some({partition})}}: cuzk_core::engine: GPU_TIMING hot_path pre-prove overhead worker_id={worker} \
partition=Some({partition}) status_ms={hot_path_ms} fail_check_ms=0 mark_busy_ms=0 \
total_overhead_ms={hot_path_ms}
TIMELINE,{offset_ms},GPU_START,{job},worker={worker},partition={partition}
@ split +800
CUZK_TIMING: split_vectors_ms={split_ms} setup_to_split_ms={setup_ms}
@ lock +850
CUZK_TIMING: pre_lock_cpu_ms={pre_lock_ms} mutex_wait_ms={mutex_wait_ms}
@ prep_end +100
CUZK_TIMING: prep_msm_ms={prep_ms}
@ b_g2_end +110
CUZK_TIMING: b_g2_msm_ms={b_g2_ms} num_circuits=1
@ ntt_end +300
CUZK_NTT_H: d_b_alloc={alloc_ms}ms ntt_kernels={copy_ms}ms coset_intt_sync={coset_ms}ms \
msm_init={init_ms}ms msm_invoke={msm_ms}ms msm_dtor={dtor_ms}ms total={ntt_ms}ms
CUZK_TIMING: gpu_tid=0 ntt_msm_h_ms={ntt_ms}
@ barrier_end +320
CUZK_TIMING: gpu_tid=0 barrier_wait_ms={barrier_ms}
@ batch_end +330
CUZK_TIMING: gpu_tid=0 batch_add_ms={batch_ms}
@ tail_end +340
CUZK_TIMING: gpu_tid=0 tail_msm_ms={tail_ms} gpu_total_ms={gpu_total_ms}
@ unlock +500
CUZK_TIMING: mutex_held_ms={held_ms} total_start_fn_ms={start_fn_ms}
@ leave +600
 INFO cuzk_core::engine: GPU_TIMING spawn_blocking prove_start worker_id={worker} \
partition=Some({partition}) spawn_to_enter_ms={spawn_ms} prove_start_ms={prove_start_ms}
@ returned +610
 INFO gpu_worker{{worker_id={worker} gpu={gpu} job_id={job} proof_kind=porep-c2 batch_size=1 \
partition=Some({partition})}}: cuzk_core::engine: GPU_TIMING prove_start returned worker_id={worker} \
partition=Some({partition}) total_pre_prove_ms={pre_prove_ms} spawn_blocking_wall_ms={spawn_wall_ms}
@ finished +620
 INFO cuzk_core::pipeline: GPU prove complete (split) proof_count=1 proof_bytes=192 gpu_ms={gpu_ms}
TIMELINE,{offset_ms},GPU_END,{job},worker={worker},partition={partition},gpu_ms={gpu_ms}
 INFO cuzk_core::engine: partition GPU prove complete job_id={job} partition={partition} gpu_ms={gpu_ms} \
filled={filled}
@ trimmed +650
 INFO cuzk_core::engine: FIN_TIMING malloc_trim (success path) job_id={job} partition={partition} \
malloc_trim_ms={trim_ms}
 INFO cuzk_core::engine: FIN_TIMING finalizer partition worker_id={worker} partition=Some({partition}) \
finish_ms={finish_ms} drop_res_ms=0 lock_wait_ms=0 process_ms={trim_ms} total_ms={finalizer_ms}
@ deallocated +680
CUZK_TIMING: async_dealloc_ms={dealloc_ms}
""".replace("\\\n", "")

ENGINE_STARTED = " INFO cuzk_core::engine: starting cuzk engine pipeline_enabled=true"
WORKER_STARTED = " INFO cuzk_core::engine: pipeline GPU worker started worker_id={worker} gpu={gpu} sub_id={place}"

# {0} and {1} are numbers no two lines share; {2}, {3} and {4} vary up to 65535. There are sixteen of these
# lines, so that four random bits pick one.
ORDINARY_LINES = r"""
 INFO cuzk_server::service: AwaitProof request_id={1:012x} timeout_ms={2} status=200
 INFO cuzk_server::service: request finished request_id={1:012x} bytes={2} elapsed_us={3} status=200
 INFO cuzk_server::service: request finished request_id={1:012x} bytes={4} elapsed_us={2} status=404
 INFO cuzk_daemon::http: GET /status peer=10.0.3.17:{2} bytes={3} elapsed_us={4} status=200
 INFO cuzk_daemon::http: GET /metrics request_id={1:012x} peer=10.0.3.18:{4} bytes={2} status=200
DEBUG h2::codec::framed_read: received frame=Data stream_id={0} flags=(0x1: END_STREAM) bytes={2}
DEBUG h2::codec::framed_write: send frame=Headers stream_id={0} flags=(0x4: END_HEADERS) bytes={3}
DEBUG tonic::transport::server: connection {0} from 10.0.3.19:{2} accepted
DEBUG hyper::proto::h1::io: flushed {2} bytes on connection {0}
 INFO cuzk_core::scheduler: nothing to schedule, tick {0}
 INFO cuzk_core::scheduler: queue inspected tick={0} pending={2} starved=false age_us={3}
DEBUG cuzk_core::memory: reservation noted request_id={1:012x} bytes={3} elapsed_us={4}
DEBUG cuzk_core::cache: entry looked up key="params/v28/{1:012x}" hit=true elapsed_us={2}
DEBUG cuzk_core::cache: entry {1:012x} kept, {2} others in use
 INFO cuzk_storage::reader: chunk read sector={0} offset={2} bytes={3} elapsed_us={4} cached=false
 WARN cuzk_storage::reader: slow read — chunk {0} took longer than usual elapsed_us={4} retries=0
"""

TRACING_LINE = re.compile(r"(?P<level> INFO| WARN|DEBUG) (?:(?P<span>\w+){{(?P<of>.*)}}: )?(?P<to>[\w:]+): ")
LEVEL_COLOURS = {" INFO": 32, " WARN": 33, "DEBUG": 34}


class Template(NamedTuple):
    """A line of PARTITION_LINES, printed offset_us after the named instant."""

    instant: str
    offset_us: int
    is_tracing: bool
    text: str


def coloured(line: str) -> str:
    """The line in the colours of the Rust tracing crate, which are on even in a file."""

    def style(code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m"

    def fields(text: str) -> str:
        return re.sub(r"(?<!\S)(\w+)=", lambda key: style(3, key[1]) + style(2, "="), text)

    head = TRACING_LINE.match(line)
    if head is None:
        return line
    span = ""
    if head["span"]:
        span = f"{style(1, head['span'])}{style(1, '{{')}{fields(head['of'])}{style(1, '}}')}{style(2, ':')} "
    level = style(LEVEL_COLOURS[head["level"]], head["level"])
    return f"{level} {span}{style(2, head['to'])}{style(2, ':')} {fields(line[head.end() :])}"


def as_text(line: str, *, ansi: bool) -> tuple[bool, str]:
    """Whether it is a tracing line, and what follows its timestamp."""
    is_tracing = TRACING_LINE.match(line) is not None
    return is_tracing, (" " if is_tracing else "") + (coloured(line) if ansi else line) + "\n"


def partition_templates(*, ansi: bool) -> list[Template]:
    """PARTITION_LINES taken apart, once, so that a line costs one str.format."""
    templates = []
    for line in PARTITION_LINES.strip().splitlines():
        if line.startswith("@"):
            _, instant, offset = line.split()
            offset_us = int(offset)
        else:
            templates.append(Template(instant, offset_us, *as_text(line, ansi=ansi)))
            offset_us += 10
    return templates
