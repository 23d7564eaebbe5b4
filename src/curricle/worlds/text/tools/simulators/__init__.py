"""Simulators: small worlds of state behind the tools of multi-step tasks, one file each."""

from curricle.worlds.text.tools.simulators.bank import Bank
from curricle.worlds.text.tools.simulators.base import Simulator
from curricle.worlds.text.tools.simulators.calendar import Calendar
from curricle.worlds.text.tools.simulators.files import Files
from curricle.worlds.text.tools.simulators.shop import Shop

SIMULATORS: dict[str, Simulator] = {one.name: one for one in (Files(), Calendar(), Bank(), Shop())}
