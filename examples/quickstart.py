import holdfast


def ask_model(messages: list[dict[str, str]]) -> dict[str, str]:  # stands for your model call
    return {"role": "assistant", "content": f"thought number {len(messages)}"}


with holdfast.open("quickstart.db") as hf:
    thread = hf.thread("essay-7")
    latest = thread.latest()  # None the first time
    state = latest.state if latest else {"messages": [{"role": "user", "content": "Write an essay."}]}
    print("resuming after step", thread.step())

    for _ in range(3):
        state["messages"].append(ask_model(state["messages"]))
        checkpoint = thread.save(state)  # when this returns, the step is on disk
        print("saved step", checkpoint.step)

    print("kept:", [checkpoint.step for checkpoint in thread.history()])
