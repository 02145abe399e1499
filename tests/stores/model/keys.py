"""The wrapped keys of a namespace."""

from __future__ import annotations

from holdfast.stores.contract import KeyRow, key_changed


class Keys(dict[bytes, KeyRow]):
    """Wrapped keys by id."""

    def page(self, after: bytes, limit: int) -> list[KeyRow]:
        return [self[id] for id in sorted(self) if id > after][:limit]

    def put(self, row: KeyRow, expect: KeyRow | None) -> KeyRow:
        if expect is None:
            return self.setdefault(row.id, row)
        if self.get(row.id) != expect:
            raise key_changed()
        self[row.id] = row
        return row

    def remove(self, id: bytes, expect: KeyRow | None) -> None:
        if expect is None or self.get(id) == expect:
            self.pop(id, None)
