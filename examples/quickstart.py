import holdfast


def ask(messages):  # in place of your model
    paid = any(message["role"] == "tool" for message in messages)
    return {"role": "assistant", "call": None if paid else {"id": "call_0", "args": {"order": 42, "cents": 1999}}}


@holdfast.tool(effect="irreversible")
def charge(order, cents):  # in place of your payment service
    return f"order {order}: {cents} cents"


with holdfast.open("agent.db") as hf, hf.run("order-42", start={"messages": []}) as run:
    for _ in run.steps():  # each step ends with a checkpoint
        reply = run.model(ask, run.state["messages"])  # recorded: a crash does not pay for it again
        run.state["messages"].append(reply)
        if reply["call"] is None:
            run.finish("paid")
            break
        # Killed inside this call? The next process does not charge again on a guess. It asks you, or your probe.
        result = run.tool(charge, reply["call"]["args"], key=reply["call"]["id"])
        run.state["messages"].append({"role": "tool", "content": result})

print(run.status, run.result)
