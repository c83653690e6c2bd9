// SPDX-License-Identifier: Apache-2.0 OR MIT
// Measurements for parametrised LogP, for each message size (Kielmann, Bal, Verstoep 2000; Stival 2006):
// roundtrip: ping-pong, gives EEL(m) = time / 2. gap: a saturating train of messages, gives g(m). gap-send,
// gap-receive: trains with a growing computation, give Os(m) and Or(m). L follows from the smallest size.
// -synchronous: the same in synchronous mode. -irecv: with receives posted in advance.
#include "common/gap.h"
#include "common/roundtrip.h"

#define SYNCHRONOUS .mode = &synchronous_mode
#define IRECV .posted = POSTED_MAX

static const struct swept tests[] = {
    {.variant = "roundtrip", .stretch = roundtrip, .grid = NEVER},
    {.variant = "gap", .stretch = gap_send, .grid = NEVER, SENT_TRAIN},
    {.variant = "gap-send", .stretch = gap_send, SENT_TRAIN},
    {.variant = "gap-receive", .stretch = gap_receive, RECEIVED_TRAIN},
    {.variant = "roundtrip-synchronous", .stretch = roundtrip, .grid = NEVER, SYNCHRONOUS},
    {.variant = "gap-synchronous", .stretch = gap_send, .grid = NEVER, SENT_TRAIN, SYNCHRONOUS},
    {.variant = "gap-send-synchronous", .stretch = gap_send, SENT_TRAIN, SYNCHRONOUS},
    {.variant = "gap-receive-synchronous", .stretch = gap_receive, RECEIVED_TRAIN, SYNCHRONOUS},
    {.variant = "roundtrip-irecv", .stretch = roundtrip_irecv, .grid = NEVER, IRECV},
    {.variant = "gap-irecv", .stretch = gap_send, .grid = NEVER, SENT_TRAIN, IRECV},
    {.variant = "gap-send-irecv", .stretch = gap_send, SENT_TRAIN, IRECV},
    {.variant = "gap-receive-irecv", .stretch = gap_receive, RECEIVED_TRAIN, IRECV},
};

int main(int argc, char **argv) {
  sweep(argc, argv, "logp", "parametrised LogP: round trip, gap and both overheads for each size", tests,
        sizeof tests / sizeof *tests);
}
