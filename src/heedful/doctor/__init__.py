"""What `heedful doctor` finds: this machine, and an inference server that is named. Nothing is changed."""

from heedful.doctor.machine import Machine, examine_machine, how_to_add
from heedful.doctor.server import ServerFindings, examine_server

__all__ = ["Machine", "ServerFindings", "examine_machine", "examine_server", "how_to_add"]
