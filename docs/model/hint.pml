/* Hints on a run that has not ended, while its log is written and other processes remove hints that are not needed.

A hint has a time: the log is worth reading from then on. A writer whose run is due earlier than the run before it writes
a hint, then the log (RunHints.announce). A process that reads a hint reads the log, and replaces the hint by a later
one, or removes it (RunHints.tidy). Time is left out: a hint may be read at any moment.

Property: if the run in the newest object has not ended, there is a hint that is not later than the run is due.

Seeded bugs (-D...): AFTER the hint is written after the log; UNNUMBERED a hint is removed by a process that has not read
the object for which it was written; GAP a hint is removed before the later one is written; FIRST only the first run
gets a hint. */

#ifndef POLLERS
#define POLLERS 1
#endif
#ifndef TURNS
#define TURNS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#define LAST 3      /* objects of the log */
#define TIMES 2
#define ENDED TIMES /* the run has ended: it is never due */

byte head;                          /* the number of the newest object */
byte due[LAST + 1];                 /* by object: when its run is due */
bool hint[TIMES * (LAST + 1)];      /* by time and by the object for which it was written */

#define HINT(time, number) hint[(time) * (LAST + 1) + (number)]
#define ROW(time) (HINT(time, 1) || HINT(time, 2) || HINT(time, 3))
#define IS_COVERED (due[head] == ENDED || ROW(0) || (due[head] == 1 && ROW(1)))

#ifdef FIRST
#define IS_EARLIER (before == ENDED)
#else
#define IS_EARLIER (next < before)
#endif
#ifdef UNNUMBERED
#define IS_READ true
#else
#define IS_READ (number <= seen)
#endif

proctype Writer() {
  byte known, before, next, attempt;
  bool won;
plan:
  attempt++;
  if :: attempt > ATTEMPTS -> goto end :: else fi;
  d_step { known = head; before = due[head] }
  if :: known >= LAST -> goto end :: else fi;
  if :: next = 0 :: next = 1 :: next = ENDED fi;
#ifndef AFTER
  if :: next != ENDED && IS_EARLIER -> HINT(next, known + 1) = true :: else fi;
#endif
  if :: goto end :: true fi;               /* a crash */
  d_step {
    won = (head == known);
    if :: won -> head = known + 1; due[head] = next; assert(IS_COVERED) :: else fi
  }
#ifdef AFTER
  if :: won && next != ENDED && IS_EARLIER -> HINT(next, known + 1) = true :: else fi;
#endif
  goto plan;
end:
  skip;
  d_step { known = 0; before = 0; next = 0; attempt = 0; won = false }
}

proctype Poller() {
  byte time, number, seen, now_due, turn;
look:
  turn++;
  if :: turn > TURNS -> goto end :: else fi;
  if
  :: HINT(0, 1) -> time = 0; number = 1
  :: HINT(0, 2) -> time = 0; number = 2
  :: HINT(0, 3) -> time = 0; number = 3
  :: HINT(1, 1) -> time = 1; number = 1
  :: HINT(1, 2) -> time = 1; number = 2
  :: HINT(1, 3) -> time = 1; number = 3
  :: goto end
  fi;
  d_step { seen = head; now_due = due[head] }
  if
  :: !IS_READ -> goto look                 /* its writer may be about to append */
  :: IS_READ && (now_due == ENDED || now_due > time) ->
#ifdef GAP
     d_step { HINT(time, number) = false; assert(IS_COVERED) }
#endif
     if :: now_due != ENDED -> HINT(now_due, seen) = true :: else fi;
     if :: goto end :: true fi;            /* a crash */
     d_step { HINT(time, number) = false; assert(IS_COVERED) }
     goto look
  :: else -> goto look
  fi;
end:
  skip;
  d_step { time = 0; number = 0; seen = 0; now_due = 0; turn = 0 }
}

init {
  atomic {
    due[0] = ENDED;
    run Writer();
    run Writer();
    run Poller();
#if POLLERS > 1
    run Poller()
#endif
  }
}
