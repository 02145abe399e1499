
import holdfast


@holdfast.tool(effect="read")
def look_up(item):
    return {"paper": 4, "ink": 11}[item]


def shopper(run):
    for _ in run.steps():
        return run.tool("look_up", {"item": run.state["item"]}, key="price")


handlers = {"shopper": shopper}
tools = [look_up]
