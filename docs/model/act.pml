/* Claims of one act by the runs of several threads, each with a log of its own.

The claim is first announced in the object of the act, and counts when its entry is in the log of its thread
(ActFiles.decided and LogVerbs._carry_out). A writer that finds an announced claim without an entry makes the append
fail that would write the entry: it creates the next object of that log itself (Namespace.interrupt).

Property: one act has at most one entry.

Seeded bugs (-D...): NO_INTERRUPT a claim without an entry is taken for one that failed; REREAD the object of the act is
read again after the interruption, and the condition of the write is what was read then; BLIND the object of the act is
written without a condition. */

#ifndef THREADS
#define THREADS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifdef BLIND
#define IS_ALLOWED true
#else
#define IS_ALLOWED (version == seen)
#endif
#if THREADS > 2
#define ENTRIES (entry[1] + entry[2] + entry[3])
#else
#define ENTRIES (entry[1] + entry[2])
#endif

byte head[THREADS + 1];   /* by thread: the number of the newest object in its log */
bool entry[THREADS + 1];  /* the entry that claims the act is in the log */
byte version;             /* of the object of the act */
byte owner;               /* the thread in it; 0 if there is none */

proctype Run(byte me) {
  byte position, seen, other, at, attempt;
  bool has, won;

plan:
  attempt++;
  if :: attempt > ATTEMPTS -> goto end :: else fi;
  position = head[me];
  d_step { seen = version; other = owner }
  if
  :: other != 0 && other != me ->
     d_step { at = head[other]; has = entry[other] }
     if
     :: has -> goto end        /* the act is held by another run */
#ifdef NO_INTERRUPT
     :: else -> skip
#else
     :: else ->
        d_step { won = (head[other] == at); if :: won -> head[other] = at + 1 :: else fi }
        if :: !won -> goto plan :: else fi
#endif
     fi;
#ifdef REREAD
     d_step { seen = version; other = owner }
#endif
  :: else -> skip
  fi;
  if :: goto end :: true fi;   /* a crash */
  d_step {
    won = IS_ALLOWED;
    if :: won -> version++; owner = me :: else fi
  }
  if :: !won -> goto plan :: else fi;
  if :: goto end :: true fi;   /* a crash */
  d_step {
    won = (head[me] == position);
    if :: won -> head[me] = position + 1; entry[me] = true :: else fi
  }
  assert(ENTRIES <= 1);
  if :: !won -> goto plan :: else fi;
end:
  skip
}

init {
  atomic {
    run Run(1);
    run Run(2);
#if THREADS > 2
    run Run(3)
#endif
  }
}
