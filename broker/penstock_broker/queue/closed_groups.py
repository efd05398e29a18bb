"""Message groups that were closed while messages of them were reserved for their owner: there may be a million.

Must not know queues or links. Source: docs/decisions/031-queue-order.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock_amqp.endpoint.events import NUMBER, Entry
from penstock_broker.queue.cursor import BacklogConsumer
from penstock_broker.queue.groups import Group, Groups
from penstock_broker.queue.sorted_messages import SortedMessages

__all__ = ["ClosedGroups", "GroupSearch"]


class GroupSearch:
    """How far the look through what is reserved for a group's owner has come. Others of its groups are among that."""

    __slots__ = ("behind", "group", "groups", "rest")

    def __init__(self, group: Group, groups: Groups, reserved: Iterable[SortedMessages[Entry]]) -> None:
        self.group, self.groups = group, groups
        self.rest = deque(reserved)
        self.behind = -1
        """Up to this number the first of the rest was looked at."""

    def take(self, most: int, taken: list[Entry]) -> int:
        """Look at the next messages, `most` at most; how many there were."""
        messages = self.rest[0]
        found = messages.following(self.behind, most)
        if len(found) < most:
            self.rest.popleft()
            self.behind = -1
        else:
            self.behind = found[-1][NUMBER]
        for entry in found:
            if self.groups.holds(entry, self.group):
                messages.remove(entry[NUMBER])
                taken.append(entry)
        return len(found)


class ClosedGroups:
    """Those of one backlog. While there are `searches`, something may still be reserved for the owner of one."""

    __slots__ = ("searches",)

    def __init__(self) -> None:
        self.searches: deque[GroupSearch] = deque()

    def add(self, group: Group, groups: Groups, reserved: Iterable[SortedMessages[Entry]]) -> None:
        """The group was closed; its messages are among what is reserved for its owner."""
        self.searches.append(GroupSearch(group, groups, reserved))

    def take(self, most: int) -> list[Entry]:
        """Take out what is of closed groups among the next reserved messages, of which `most` are looked at."""
        taken: list[Entry] = []
        while self.searches and most > 0:
            search = self.searches[0]
            if search.rest:
                most -= search.take(most, taken)
            else:
                self.searches.popleft()
        return taken

    def drop(self, owner: BacklogConsumer) -> None:
        """All that is reserved for this owner goes back in another way."""
        self.searches = deque(each for each in self.searches if each.group.consumer is not owner)

    def clear(self) -> None:
        """Nothing is reserved for anybody."""
        self.searches.clear()
