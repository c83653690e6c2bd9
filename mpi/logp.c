// SPDX-License-Identifier: Apache-2.0 OR MIT
// Measurements for parametrised LogP, for each message size (Kielmann, Bal, Verstoep 2000; Stival 2006):
// roundtrip: ping-pong, gives EEL(m) = time / 2. gap: a saturating train of messages, gives g(m). gap-send,
// gap-receive: trains with a growing computation, give Os(m) and Or(m). L follows from the smallest size.
#include "common/gap.h"
#include "common/roundtrip.h"

static const struct swept tests[] = {
    {.variant = "roundtrip", .stretch = roundtrip, .grid = NEVER},
    {.variant = "gap", .stretch = gap_send, .part = "single", .part_inner = ANSWERED, .grid = NEVER, .train = 1},
    {.variant = "gap-send", .stretch = gap_send, .part = "single", .part_inner = ANSWERED, .train = 1},
    {.variant = "gap-receive", .stretch = gap_receive, .computing = LAST, .train = 1},
};

int main(int argc, char **argv) {
  static const char *const variants[] = {"roundtrip", "gap", "gap-send", "gap-receive", NULL};
  static const struct extra extras[] = {SWEEP_OPTIONS, {0}};
  begin(argc, argv,
        &(struct program){.name = "logp",
                          .summary = "parametrised LogP: round trip, gap and both overheads for each size",
                          .variants = variants,
                          .extras = extras,
                          .ranks_min = 2});
  sweep_all(tests, sizeof tests / sizeof *tests);
  finish();
}
