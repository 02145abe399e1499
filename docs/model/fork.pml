/* A commit in one thread uses cells of a checkpoint in another, the origin, while that checkpoint is deleted.

The commit stores the name of its thread under its number (Namespace.reserve), registers the number in the log of the
origin (LogVerbs._register), and is then written to its own log. The deletion first makes commits of registered threads
fail that are under way, which it finds by their numbers (Namespace.interrupt_forks). Cells are swept later, if no
thread that can be read uses them.

Property: no commit uses cells that were swept.

Seeded bugs (-D...): NO_INTERRUPT a deletion does not look at registered threads; SKIP a thread that is registered does
not register again, so that its commit does not notice a change of the origin; UNNAMED the name is stored after the
registration. */

#define ATTEMPTS 3

byte origin;            /* the number of the newest object in the log of the origin */
bool registered;        /* the fork is registered there */
bool named;             /* the name of the fork is stored under its number */
bool deleted;           /* the checkpoint is deleted */
bool swept;             /* its cells are removed */
byte fork;              /* the number of the newest object in the log of the fork */
bool uses;              /* it has a commit that uses the cells */

proctype Fork() {
  byte position, at, attempt;
  bool won, is_known;
plan:
  attempt++;
  if :: attempt > ATTEMPTS -> goto end :: else fi;
  position = fork;
  d_step { at = origin; is_known = registered; won = !deleted }
  if :: !won -> goto end :: else fi;       /* the checkpoint no longer exists */
#ifndef UNNAMED
  named = true;
#endif
#ifdef SKIP
  if
  :: is_known -> skip
  :: else ->
#endif
  d_step { won = (origin == at); if :: won -> origin = at + 1; registered = true :: else fi }
  if :: !won -> goto plan :: else fi;
#ifdef SKIP
  fi;
#endif
#ifdef UNNAMED
  named = true;
#endif
  if :: goto end :: true fi;               /* a crash */
  d_step { won = (fork == position); if :: won -> fork = position + 1; uses = true :: else fi }
  assert(!(uses && swept));
  if :: !won -> goto plan :: else fi;
end:
  skip
}

proctype Deleter() {
  byte at, there, attempt;
  bool won, is_known, is_used;
plan:
  attempt++;
  if :: attempt > ATTEMPTS -> goto end :: else fi;
  d_step { at = origin; is_known = registered }
#ifndef NO_INTERRUPT
  if
  :: is_known && named ->
     there = fork;
     d_step { won = (fork == there); if :: won -> fork = there + 1 :: else fi }
     if :: !won -> goto plan :: else fi
  :: else -> skip
  fi;
#endif
  if :: goto end :: true fi;               /* a crash */
  d_step { won = (origin == at); if :: won -> origin = at + 1; deleted = true :: else fi }
  if :: !won -> goto plan :: else fi;
  is_used = uses;                          /* a sweep, perhaps much later */
  if :: !is_used -> swept = true :: else fi;
  assert(!(uses && swept));
end:
  skip
}

init { atomic { run Fork(); run Deleter() } }
