/* The deletion of objects that newer ones repeat, while writers with old knowledge append.

A number that was deleted could be created again. So objects are deleted only when they are old (Bucket.clean), and a
writer looks again when its knowledge is old (ObjectLog._create). A request is under way for less than a tick.

Property, asserted where an object is created: it follows the newest one.

Seeded bugs (-D...): EAGER the cleaner deletes objects that are not old; TRUSTING a writer appends however old its
knowledge is; LATE a writer takes the time of its knowledge when the answer arrives, not before the request. */

#define LAST 3
#define PATIENCE 1  /* ticks after which a writer looks again */
#define GRACE 3     /* ticks after which an object may be deleted */
#define TICKS 4

#ifdef EAGER
#define IS_OLD(n) true
#else
#define IS_OLD(n) (now - made[n] >= GRACE)
#endif
#ifdef TRUSTING
#define IS_KNOWN true
#else
#define IS_KNOWN (now - looked <= PATIENCE)
#endif
#define IS_RECENT(w) (flying[w] == 0 || flying[w] == now + 1)

byte head;
bool there[LAST + 2];
byte made[LAST + 2];   /* by number: when the object was created */
byte now;              /* ticks of real time */
byte flying[3];        /* when a writer checked its knowledge, before a request that is under way; 0 if none is */

proctype Writer(byte me) {
  byte known, looked, checked, attempt;
  bool won;
look:
  skip;
  attempt++;
  if :: attempt > 2 -> goto end :: else fi;
  d_step { known = head; looked = now }
plan:
  if :: known >= LAST -> goto end :: else fi;
  d_step { checked = now; if :: IS_KNOWN -> flying[me] = now + 1 :: else fi }
  if :: flying[me] == 0 -> goto look :: else fi;
  d_step {
    won = !there[known + 1];
    if
    :: won -> assert(known + 1 == head + 1); head = known + 1; there[head] = true; made[head] = now
    :: else
    fi;
    flying[me] = 0
  }
  if
#ifdef LATE
  :: won -> d_step { known = known + 1; looked = now } goto plan
#else
  :: won -> d_step { known = known + 1; looked = checked } goto plan
#endif
  :: else -> goto look
  fi;
end:
  skip;
  d_step { known = 0; looked = 0; checked = 0; attempt = 0; won = false }
}

proctype Cleaner() {
  do
  :: atomic { there[1] && head > 1 && IS_OLD(1) -> there[1] = false }
  :: atomic { there[2] && head > 2 && IS_OLD(2) -> there[2] = false }
  :: now >= TICKS -> break
  od
}

proctype Time() {
  do
  :: atomic { now < TICKS && IS_RECENT(1) && IS_RECENT(2) -> now++ }
  :: now >= TICKS -> break
  od
}

init { atomic { run Writer(1); run Writer(2); run Cleaner(); run Time() } }
