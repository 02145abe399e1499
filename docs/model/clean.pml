/* The deletion of objects that newer ones repeat, while writers with old knowledge append.

A number that was deleted could be created again. So objects are deleted only when they are old (Bucket.clean). A writer
looks again when its knowledge is old, and is not sure of a write when it is old afterwards (ObjectLog._create): the
machine may have been suspended at any time.

Property, asserted where a writer takes note that its object was created: it followed the newest one.

Seeded bugs (-D...): EAGER the cleaner deletes objects that are not old; TRUSTING a writer appends however old its
knowledge is; LATE a writer takes the time of its knowledge when the answer arrives, not before the request; SURE a
writer is sure of its write however long the request took. */

#define LAST 3
#define PATIENCE 1  /* ticks after which a writer looks again */
#define GRACE 3     /* ticks after which an object may be deleted */
#define TICKS 5

#ifdef EAGER
#define IS_OLD(n) true
#else
#define IS_OLD(n) (now - made[n] >= GRACE)
#endif
#ifdef TRUSTING
#define IS_KNOWN true
#define IS_SURE true
#else
#define IS_KNOWN (now - looked <= PATIENCE)
#ifdef SURE
#define IS_SURE true
#else
#define IS_SURE (now - looked <= PATIENCE)
#endif
#endif

byte head;
bool there[LAST + 2];
byte made[LAST + 2];   /* by number: when the object was created */
byte now;              /* ticks of real time; any number may pass between two steps */

proctype Writer(byte me) {
  byte known, looked, checked, attempt;
  bool won, follows;
look:
  skip;
  attempt++;
  if :: attempt > 2 -> goto end :: else fi;
  d_step { looked = now; known = head }
plan:
  if :: known >= LAST -> goto end :: else fi;
  d_step { checked = now; won = IS_KNOWN }
  if :: !won -> goto look :: else fi;
  d_step {
    won = !there[known + 1];
    follows = (known + 1 == head + 1);
    if
    :: won ->
       there[known + 1] = true;
       made[known + 1] = now;
       if :: follows -> head = known + 1 :: else fi    /* readers do not look at a number below the newest one */
    :: else
    fi
  }
  if
  :: won ->
     d_step { if :: IS_SURE -> assert(follows) :: else -> won = false fi }
#ifdef LATE
     d_step { known = known + 1; looked = now }
#else
     d_step { known = known + 1; looked = checked }
#endif
     if :: won -> goto plan :: else -> goto end fi     /* not sure: the caller is told that the outcome is not known */
  :: else -> goto look
  fi;
end:
  skip;
  d_step { known = 0; looked = 0; checked = 0; attempt = 0; won = false; follows = false }
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
  :: now < TICKS -> now++
  :: now >= TICKS -> break
  od
}

init { atomic { run Writer(1); run Writer(2); run Cleaner(); run Time() } }
