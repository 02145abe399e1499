"""What ares has: each public type, field, method and behaviour, and what its own tests assert, in our words."""

from __future__ import annotations

from typing import Final

_CHECKPOINT: Final = (
    ("Checkpoint.id", "each checkpoint has an id of its own"),
    ("Checkpoint.agent_name", "the name of the agent"),
    ("Checkpoint.session_id", "the session it belongs to"),
    ("Checkpoint.step", "the number of the step, from 0"),
    ("Checkpoint.messages", "the conversation so far, in order"),
    ("Checkpoint.tool_calls", "the tool calls made, with their results"),
    ("Checkpoint.partial_results", "what was worked out so far"),
    ("Checkpoint.timestamp", "when it was made, in whole seconds since 1970"),
    ("Checkpoint.status", "how the agent stood"),
    ("Checkpoint.clone", "a copy equals the original"),
    ("Checkpoint.display", "as text it names session, agent, step and status"),
    ("Checkpoint.debug", "its repr names its class"),
    ("CheckpointMessage.role", 'who speaks: "user", "assistant", "system"'),
    ("CheckpointMessage.content", "what is said"),
    ("ToolCallRecord.tool_name", "which tool was called"),
    ("ToolCallRecord.arguments", "with what"),
    ("ToolCallRecord.result", "what it gave, or nothing yet"),
    ("ToolCallRecord.success", "whether it succeeded"),
    ("CheckpointStatus.InProgress", "the agent is at work"),
    ("CheckpointStatus.Completed", "the agent is done"),
    ("CheckpointStatus.Failed", "the agent failed, with the reason"),
    ("CheckpointStatus.Halted", "the agent was stopped by a guard, with the reason"),
    ("CheckpointStatus.eq", "two statuses are equal if kind and reason are"),
)

_MANAGER: Final = (
    ("CheckpointManager.new", "opening a folder that is not there makes it"),
    ("CheckpointManager.new.file", "opening a folder where there is a file is an error"),
    ("CheckpointManager.default_dir", "without a path, a folder in the user's data folder"),
    ("CheckpointManager.save", "a checkpoint is written, and is the newest then"),
    ("CheckpointManager.save.readable", "what is written is JSON text in files that people can read"),
    ("CheckpointManager.save.same_step", "a step saved again: the newer one counts"),
    ("CheckpointManager.load_latest", "the newest checkpoint of a session, whole"),
    ("CheckpointManager.load_latest.none", "nothing for a session that has none"),
    ("CheckpointManager.load_latest.restart", "another process finds what this one saved"),
    ("CheckpointManager.load_latest.invalid", "bytes that are no checkpoint are an error, not an empty answer"),
    ("CheckpointManager.list_checkpoints", "the checkpoints of one session, in the order of their steps"),
    ("CheckpointManager.list_checkpoints.corrupt", "a listing passes over what cannot be read"),
    ("CheckpointManager.cleanup", "removes a session, and says how many checkpoints that were"),
    ("CheckpointManager.cleanup.other", "other sessions stay, also one whose name begins alike"),
    ("CheckpointManager.has_checkpoint", "whether a session can be resumed"),
    ("CheckpointManager.has_checkpoint.none", "not before the first save, and not after the cleanup"),
    ("crash recovery", "saved before each step; a new process goes on from the newest, with what was done"),
    ("io::Error", "what the disk refuses is an error of one family, with its cause"),
)

_TESTS: Final = (
    ("test_save_and_load", "session, step, two messages and one tool call come back"),
    ("test_load_nonexistent", "an unknown session gives nothing, and no error"),
    ("test_multiple_steps", "of steps 0, 1, 2 the newest is 2; all are listed, 0 first, 2 last"),
    ("test_cleanup", "after the cleanup of two steps both are counted and none is left"),
    ("test_separate_sessions", "cleaning one session leaves the other"),
    ("test_checkpoint_status_serialization", 'failed with the reason "OOM" comes back so'),
    ("test_restore_preserves_all_checkpoint_fields", "every field comes back as it was saved"),
    ("test_completed_and_halted_round_trip", "completed and halted with a reason come back so"),
    ("test_stale_pointer", "a newest record that is gone is never taken for an older one"),
)

_SUCCESSOR: Final = (
    ("ttl_secs", "a time to live on each checkpoint, or none"),
    ("CheckpointMetadata.agent_id", "without its state a checkpoint still tells its agent"),
    ("CheckpointMetadata.run_id", "… and its session"),
    ("CheckpointMetadata.step", "… and its step"),
    ("CheckpointMetadata.timestamp", "… and its time"),
    ("CheckpointMetadata.ttl_secs", "… and its time to live"),
    ("CheckpointMetadata.from", "made from a checkpoint, without its contents"),
    ("CheckpointMetadata.serde", "goes to JSON and back, equal"),
    ("CheckpointMetadata.display", "as text it names the session"),
    ("CheckpointError.NotFound", "no such checkpoint: an error of its own"),
    ("CheckpointError.Corrupt", "damaged bytes: an error of its own"),
    ("CheckpointError.IoError", "the disk failed: an error of its own"),
    ("CheckpointError.display", "errors say what happened, and what was asked for"),
    ("checkpoint_key", "one name for agent and run, another for every other pair"),
    ("create_checkpoint", "made from agent, run, step, messages, calls, partial results, status"),
    ("create_checkpoint_with_ttl", "the same with a time to live"),
    ("serialize_state", "a checkpoint as bytes"),
    ("restore_checkpoint", "and from these bytes again, equal"),
    ("restore_checkpoint.empty", "no bytes are refused"),
    ("restore_checkpoint.invalid", "bytes that are no JSON are refused"),
    ("is_expired", "expired when more time has passed than it had, not at that moment"),
    ("is_expired.without_ttl", "never expired without a time to live"),
    ("expired_metadata", "of several, those that are expired"),
    ("cleanup_expired", "removes what is expired, leaves the rest, and says how many"),
    ("compact_json", "states are written without white space"),
)

_NEIGHBOURS: Final = (
    ("LoopDetector.window", "only the newest answers count, 10 by default: what was evicted is no loop"),
    ("LoopDetector.repeat_threshold", "the same answer so often, 3 times by default, is a loop"),
    ("LoopDetector.normalised", "white space and case make no difference"),
    ("LoopDetector.no_loop", "different answers are none"),
    ("LoopDetector.min_output_len", "short answers are not counted"),
    ("LoopDetector.fuzzy", "answers that are nearly the same can be counted as one"),
    ("LoopAction.InjectWarning", "first the agent is told that it repeats itself"),
    ("LoopAction.ForceAlternative", "then that it has to do something else"),
    ("LoopAction.HaltAgent", "then it is halted, with the reason"),
    ("LoopDetector.reset", "a new conversation begins without repeats"),
    ("LoopDetector.stats", "how many answers there were, and how many repeats"),
    ("LoopConfig", "all of this is set by values, which go to JSON and back"),
    ("LoopState", "and what was counted survives a restart"),
    ("LoopConfig.max_iterations", "so many iterations at most; without a limit any number"),
    ("LoopConfig.count_failed_iterations", "iterations that fail count, too"),
    ("LoopConfig.halt_on_consecutive_failures", "so many failures one after the other end it; a success begins anew"),
    ("EmergencyStop", "one switch stops every agent, and nothing new is begun until it is taken back"),
)

ARES: Final[tuple[tuple[str, str], ...]] = (*_CHECKPOINT, *_MANAGER, *_TESTS, *_SUCCESSOR, *_NEIGHBOURS)
