/* Append, claim, renew, fence, take over, crash, lost answer and retry on the log of one thread in a bucket.

The objects of a log are numbered. A writer creates the next one, under the condition that it does not exist
(ObjectLog._create in src/holdfast/stores/log/object_log.py). Nothing here depends on the clock of a lease: a worker may
believe at any time that a lease has ended. clean.pml has the deletion of objects.

Properties, asserted where an object is created:
  order   a new object follows the newest one: no acknowledged group is ever left out of the log
  fence   a group of a run is written only by the worker whose claim is the newest one
  claim   every claim has a fence of its own
  once    an operation that was retried is in the log once
and where a writer takes note of the result:
  sure    a writer that believes its operation to be in the log is right, and so is one that plans it again

Seeded bugs (-D...): IGNORED the server ignores the condition; NO_NONCE a writer does not recognise its own object after
a lost answer; NO_FENCE a worker writes without having read the newest claim. */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 4
#endif
#define LAST 6      /* objects */

#ifdef IGNORED
#define IS_FREE(n) true
#else
#define IS_FREE(n) (n > head)
#endif

#define CLAIM 1
#define WORK 2

byte head;                 /* the number of the newest object */
byte writer[LAST + 2];     /* by number: its nonce, which names the worker and its attempt */
byte fence;                /* of the newest claim in the log */
byte holder;               /* the worker that made it */
bool done[WORKERS + 1];    /* the worker's operation is in the log */

/* The server: creates an object, if there is none. `won` is whether it did. */
inline create(number, kind, f, nonce) {
  won = false;
  if
  :: IS_FREE(number) ->
     assert(number == head + 1);                                   /* order */
     assert(kind != WORK || (fence == f && holder == me));         /* fence */
     assert(kind != CLAIM || f == fence + 1);                      /* claim */
     writer[number] = nonce;
     head = number;
     if
     :: kind == CLAIM -> fence = f; holder = me
     :: else -> assert(!done[me]); done[me] = true                 /* once */
     fi;
     won = true
  :: else -> skip
  fi
}

proctype Worker(byte me) {
  byte known = 0;      /* the newest object that it has read */
  byte f = 0;          /* the fence in the log as it was then */
  byte h = 0;          /* and the holder */
  byte kind, nonce, attempt, tries;
  bool won;

look:
  skip;
  d_step { known = head; f = fence; h = holder }
plan:
  attempt++;
  if :: attempt > ATTEMPTS || known >= LAST -> goto end :: else fi;
  if
  :: h == me && !done[me] -> kind = WORK
  :: h == me -> kind = CLAIM; f = f + 1     /* it renews by a claim of its own */
  :: h != me -> kind = CLAIM; f = f + 1     /* it believes that the lease has ended: it takes over */
  :: goto end                               /* it crashes, or has nothing to do */
  fi;
#ifdef NO_FENCE
  known = head;                             /* it appends to a log that it has not read to its end */
#endif
  nonce = me * 16 + attempt;
  tries = 0;
send:
  tries++;
  if
  :: d_step { create(known + 1, kind, f, nonce) }           /* the answer arrives */
  :: d_step { create(known + 1, kind, f, nonce); won = false } ->
     if                                                     /* the answer is lost */
     :: tries < 3 -> goto send
     :: goto end                                            /* or the worker crashes */
     fi
  :: goto end                                               /* it crashes before the request */
  fi;
#ifndef NO_NONCE
  if
  :: !won -> won = (writer[known + 1] == nonce)             /* the object exists: whose is it? */
  :: else
  fi;
#endif
  if
  :: won ->
     assert(kind != WORK || done[me]);                      /* sure */
     known = known + 1;
     if :: kind == CLAIM -> h = me :: else fi;
     goto plan
  :: else ->
     assert(kind != WORK || !done[me]);                     /* sure */
     goto look
  fi;
end:
  skip;
  d_step { known = 0; f = 0; h = 0; kind = 0; nonce = 0; attempt = 0; tries = 0; won = false }
}

init {
  atomic {
    run Worker(1);
    run Worker(2);
#if WORKERS > 2
    run Worker(3)
#endif
  }
}
