"""The places of lines, compared with a dict of them."""

from __future__ import annotations

import random

from holdfast.stores.log.replay import Place, Places


def test_places_are_found_as_in_a_dict() -> None:
    source = random.Random(3)
    for _ in range(300):
        places, model = Places(), dict[int, Place]()
        for _ in range(source.randrange(30)):
            number = source.choice([max(model, default=0) + 1, source.randrange(1, 30)])
            if source.random() < 0.2:
                end = number + source.randrange(5)
                places.remove(number, end)
                model = {at: place for at, place in model.items() if not number <= at < end}
            else:
                place = Place(number, source.randrange(3), source.randrange(1000), source.randrange(1000))
                places.put(*place)
                model[number] = place
        in_order = [model[at] for at in sorted(model)]
        assert (list(places), len(places)) == (in_order, len(model))
        assert places.last == max(model, default=0)
        assert places.size == sum(place.length + 1 for place in in_order)
        for number in range(-1, 35):
            assert places.get(number) == model.get(number)
            assert (number in places) == (number in model)
            assert list(places.below(number)) == [place for place in reversed(in_order) if place.number < number]
        assert list(places.below(None)) == in_order[::-1]
        assert places.missing(32) == [number for number in range(1, 33) if number not in model]
        assert places.tagged(1) == [place.number for place in in_order if place.tag == 1]


def test_many_places_are_listed_from_the_newest() -> None:
    places = Places()
    for number in range(1, 1001):
        places.put(number, 0, number * 10, 9)
    assert [place.number for place in places.below(700)] == list(range(699, 0, -1))
    assert places.between(10, 12) == [Place(11, 0, 110, 9), Place(12, 0, 120, 9)]
