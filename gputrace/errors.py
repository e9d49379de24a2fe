"""Everything that gputrace raises on purpose.

    GputraceError
    ├── InputError          the input cannot be used                 exit code 3
    ├── UsageError          the request contradicts itself           exit code 2
    ├── GateError           a gate on a comparison failed            exit code 4
    ├── RecordingError      a recording cannot be written further    exit code 5
    ├── ClusterError        a fleet's workers are not to be had      exit code 6
    └── BrokenInstallError  files that belong to gputrace are gone   exit code 1

A message is one line that says what is wrong, where (file and line), and what to do about it.
Anything else that escapes is a bug.
"""


class GputraceError(Exception):
    """Base of every error meant for the user; `exit_code` is what the command line returns for it."""

    exit_code = 1


class InputError(GputraceError):
    """The input cannot be used: it is missing, damaged or not what it was taken for."""

    exit_code = 3


class UsageError(GputraceError):
    """The options given contradict each other or name something that is not there."""

    exit_code = 2


class GateError(GputraceError):
    """A gate (`--fail-if`) did not hold."""

    exit_code = 4


class RecordingError(GputraceError):
    """A recording cannot be begun or written further: the disk is full or broken."""

    exit_code = 5


class ClusterError(GputraceError):
    """The workers of a fleet are not there, are of another version, or went away; what is done is kept."""

    exit_code = 6


class BrokenInstallError(GputraceError):
    """Bundled formats or templates are missing: gputrace must be installed again."""
