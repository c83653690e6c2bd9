// SPDX-License-Identifier: Apache-2.0 OR MIT
// Atomic operations: each of each type by each class of calls, against fi_atomic(3) written down once more in C.
#include <complex.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b;
static struct fid_mr *region;

enum {
  KEY = 42,
  BYTES = 8192,
  AT = 24,  // of the elements in the region
  ELEMENTS = 7
};

static char memory[BYTES];

static void open_both(void) {
  struct options options = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};
  node_open(&a, options);
  node_open(&b, options);
  to_b = node_add_peer(&a, &b);
  node_add_peer(&b, &a);
  OK(fi_mr_reg(b.domain, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &region, NULL));
}

static void close_both(void) {
  OK(fi_close(&region->fid));
  node_close(&a);
  node_close(&b);
}

#define INTEGERS(F) F(int8_t) F(uint8_t) F(int16_t) F(uint16_t) F(int32_t) F(uint32_t) F(int64_t) F(uint64_t)
#define FLOATS(F) F(float) F(double)
#define COMPLEXES(F) F(float_complex) F(double_complex)
typedef float complex float_complex;
typedef double complex double_complex;

// What is defined for all types; overflow wraps, in unsigned arithmetic.
#define FOR_ALL(type, wide)                                    \
  case FI_SUM: *at = (type)((wide)old + (wide) new); break;    \
  case FI_PROD: *at = (type)((wide)old * (wide) new); break;   \
  case FI_LOR: *at = (type)(old != 0 || new != 0); break;      \
  case FI_LAND: *at = (type)(old != 0 && new != 0); break;     \
  case FI_LXOR: *at = (type)((old != 0) != (new != 0)); break; \
  case FI_ATOMIC_READ: break;                                  \
  case FI_ATOMIC_WRITE: *at = new; break;                      \
  case FI_CSWAP: *at = compare == old ? new : old; break;      \
  case FI_CSWAP_NE:                                            \
    *at = compare != old ? new : old;                          \
    break;
#define FOR_ORDERED                                          \
  case FI_MIN: *at = old < new ? old : new; break;           \
  case FI_MAX: *at = old > new ? old : new; break;           \
  case FI_CSWAP_LE: *at = compare <= old ? new : old; break; \
  case FI_CSWAP_LT: *at = compare < old ? new : old; break;  \
  case FI_CSWAP_GE: *at = compare >= old ? new : old; break; \
  case FI_CSWAP_GT:                                          \
    *at = compare > old ? new : old;                         \
    break;
#define FOR_BITS(type)                          \
  case FI_BOR: *at = (type)(old | new); break;  \
  case FI_BAND: *at = (type)(old & new); break; \
  case FI_BXOR: *at = (type)(old ^ new); break; \
  case FI_MSWAP: *at = (type)((new &compare) | (old & ~compare)); break;

// Applies an operation to an element; 0 if the type does not have it.
#define APPLY(type, ...)                                                                              \
  static int apply_##type(enum fi_op op, void *element, const void *operand, const void *comparand) { \
    type *at = element, old = *at, new = *(const type *)operand, compare = *(const type *)comparand;  \
    switch (op) {                                                                                     \
      __VA_ARGS__                                                                                     \
      default: return 0;                                                                              \
    }                                                                                                 \
    return 1;                                                                                         \
  }
#define APPLY_INTEGER(type) APPLY(type, FOR_ALL(type, uint64_t) FOR_ORDERED FOR_BITS(type))
#define APPLY_FLOAT(type) APPLY(type, FOR_ALL(type, type) FOR_ORDERED)
#define APPLY_COMPLEX(type) APPLY(type, FOR_ALL(type, type))
INTEGERS(APPLY_INTEGER)
FLOATS(APPLY_FLOAT)
COMPLEXES(APPLY_COMPLEX)

// Values of which many are equal, or 0; of floats, halves, so that results are exact.
static uint64_t random_word(void) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}
#define DRAW_INTEGER(type) \
  static void draw_##type(void *to) { *(type *)to = (type)(random_word() % 3 ? random_word() % 4 : ~random_word()); }
#define DRAW_FLOAT(type) \
  static void draw_##type(void *to) { *(type *)to = (type)((double)(random_word() % 7) / 2 - 1.5); }
#define DRAW_COMPLEX(type)                                                                   \
  static void draw_##type(void *to) {                                                        \
    *(type *)to = (type)((double)(random_word() % 3) - 1 + (double)(random_word() % 2) * I); \
  }
INTEGERS(DRAW_INTEGER)
FLOATS(DRAW_FLOAT)
COMPLEXES(DRAW_COMPLEX)

static const struct kind {
  enum fi_datatype datatype;
  size_t bytes;
  int (*apply)(enum fi_op, void *, const void *, const void *);
  void (*draw)(void *);
} kinds[] = {
#define KIND(datatype, type) \
  { datatype, sizeof(type), apply_##type, draw_##type }
    KIND(FI_INT8, int8_t),
    KIND(FI_UINT8, uint8_t),
    KIND(FI_INT16, int16_t),
    KIND(FI_UINT16, uint16_t),
    KIND(FI_INT32, int32_t),
    KIND(FI_UINT32, uint32_t),
    KIND(FI_INT64, int64_t),
    KIND(FI_UINT64, uint64_t),
    KIND(FI_FLOAT, float),
    KIND(FI_DOUBLE, double),
    KIND(FI_FLOAT_COMPLEX, float_complex),
    KIND(FI_DOUBLE_COMPLEX, double_complex),
};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

// Elements as operands, to compare with, as results, and as the region must have them.
static char operand[BYTES], comparand[BYTES], result[BYTES], before[BYTES], after[BYTES];

// New contents for the region and the operands, and what the operation is to make of the region; 0 if there is no such
// operation.
static int prepare(const struct kind *kind, enum fi_op op, size_t count) {
  fill(memory, BYTES, random_word());
  for (size_t i = 0; i < count; i++) {
    kind->draw(operand + i * kind->bytes);
    kind->draw(comparand + i * kind->bytes);
    kind->draw(memory + AT + i * kind->bytes);
  }
  memset(result, 0, BYTES);
  memcpy(before, memory, BYTES);
  memcpy(after, memory, BYTES);
  for (size_t i = 0; i < count; i++) {
    char *element = after + AT + i * kind->bytes;
    if (!kind->apply(op, element, operand + i * kind->bytes, comparand + i * kind->bytes)) return 0;
  }
  return 1;
}

// The region is as it must be, and so are the results, of an operation that has any.
static void check(const struct kind *kind, enum fi_op op, size_t count, int has_result) {
  next_success(&a);
  CHECK(!memcmp(memory, after, BYTES), "type %d, operation %d", kind->datatype, op);
  if (has_result) CHECK(!memcmp(result, before + AT, count * kind->bytes), "type %d, operation %d", kind->datatype, op);
}

enum class {
  BASE,
  FETCH,
  COMPARE
};

static int is_in_class(enum class class, enum fi_op op) {
  int compares = op >= FI_CSWAP;
  return class == COMPARE ? compares : !compares && (class == FETCH || op != FI_ATOMIC_READ);
}

static int valid(enum class class, enum fi_datatype datatype, enum fi_op op, size_t *count) {
  switch (class) {
    case BASE: return fi_atomicvalid(a.ep, datatype, op, count);
    case FETCH: return fi_fetch_atomicvalid(a.ep, datatype, op, count);
    default: return fi_compare_atomicvalid(a.ep, datatype, op, count);
  }
}

static long post(enum class class, enum fi_datatype datatype, enum fi_op op, size_t count) {
  switch (class) {
    case BASE: return fi_atomic(a.ep, operand, count, NULL, to_b, AT, KEY, datatype, op, NULL);
    case FETCH: return fi_fetch_atomic(a.ep, operand, count, NULL, result, NULL, to_b, AT, KEY, datatype, op, NULL);
    default:
      return fi_compare_atomic(a.ep, operand, count, NULL, comparand, NULL, result, NULL, to_b, AT, KEY, datatype, op,
                               NULL);
  }
}

static void every_atomic_operation_of_every_type(char **arguments) {
  (void)arguments;
  open_both();
  for (int k = 0; k < KINDS; k++)
    for (enum fi_op op = 0; op <= FI_MSWAP; op++)
      for (enum class class = BASE; class <= COMPARE; class ++) {
        const struct kind *kind = &kinds[k];
        size_t most = 0;
        if (!prepare(kind, op, ELEMENTS) || !is_in_class(class, op)) {
          EXPECT(-FI_EOPNOTSUPP, valid(class, kind->datatype, op, &most));
          EXPECT(-FI_EOPNOTSUPP, post(class, kind->datatype, op, ELEMENTS));
          continue;
        }
        OK(valid(class, kind->datatype, op, &most));
        OK(valid(class, kind->datatype, op, NULL));
        CHECK(most >= ELEMENTS && AT + most * kind->bytes <= BYTES, "%zu", most);
        POST(post(class, kind->datatype, op, ELEMENTS));
        check(kind, op, ELEMENTS, class != BASE);
        // As many as there may be at most, and one more.
        prepare(kind, op, most);
        POST(post(class, kind->datatype, op, most));
        check(kind, op, most, class != BASE);
        EXPECT(-FI_EMSGSIZE, post(class, kind->datatype, op, most + 1));
      }
  static const enum fi_datatype others[] = {FI_LONG_DOUBLE, FI_LONG_DOUBLE_COMPLEX, FI_DATATYPE_LAST};
  for (int i = 0; i < 3; i++)
    for (enum class class = BASE; class <= COMPARE; class ++) {
      EXPECT(-FI_EOPNOTSUPP, valid(class, others[i], class == COMPARE ? FI_CSWAP : FI_SUM, NULL));
      EXPECT(-FI_EOPNOTSUPP, post(class, others[i], class == COMPARE ? FI_CSWAP : FI_SUM, 1));
    }
  expect_idle(&a, 0.02);
  close_both();
}

// The elements of an operation may be in several places, other ones for operand, comparison and result.
static void atomic_operations_with_vectors_and_messages(char **arguments) {
  (void)arguments;
  open_both();
  for (int k = 0; k < KINDS; k++) {
    const struct kind *kind = &kinds[k];
    size_t bytes = kind->bytes;
    struct fi_ioc operands[] = {{operand, 3}, {operand + 3 * bytes, ELEMENTS - 3}};
    struct fi_ioc comparands[] = {{comparand, 1}, {comparand + bytes, 0}, {comparand + bytes, ELEMENTS - 1}};
    struct fi_ioc results[] = {{result, ELEMENTS - 2}, {result + (ELEMENTS - 2) * bytes, 2}};
    struct fi_rma_ioc at = {AT, ELEMENTS, KEY};
    struct fi_msg_atomic message = {.msg_iov = operands,
                                    .iov_count = 2,
                                    .addr = to_b,
                                    .rma_iov = &at,
                                    .rma_iov_count = 1,
                                    .datatype = kind->datatype};
    for (int with_message = 0; with_message <= 1; with_message++) {
      message.op = FI_SUM;
      prepare(kind, FI_SUM, ELEMENTS);
      POST(with_message ? fi_atomicmsg(a.ep, &message, FI_COMPLETION)
                        : fi_atomicv(a.ep, operands, NULL, 2, to_b, AT, KEY, kind->datatype, FI_SUM, NULL));
      check(kind, FI_SUM, ELEMENTS, 0);
      prepare(kind, FI_SUM, ELEMENTS);
      POST(with_message ? fi_fetch_atomicmsg(a.ep, &message, results, NULL, 2, FI_COMPLETION)
                        : fi_fetch_atomicv(a.ep, operands, NULL, 2, results, NULL, 2, to_b, AT, KEY, kind->datatype,
                                           FI_SUM, NULL));
      check(kind, FI_SUM, ELEMENTS, 1);
      message.op = FI_CSWAP_NE;
      prepare(kind, FI_CSWAP_NE, ELEMENTS);
      POST(with_message ? fi_compare_atomicmsg(a.ep, &message, comparands, NULL, 3, results, NULL, 2, FI_COMPLETION)
                        : fi_compare_atomicv(a.ep, operands, NULL, 2, comparands, NULL, 3, results, NULL, 2, to_b, AT,
                                             KEY, kind->datatype, FI_CSWAP_NE, NULL));
      check(kind, FI_CSWAP_NE, ELEMENTS, 1);
    }
    // A read has no operand, even if the call names one.
    prepare(kind, FI_ATOMIC_READ, ELEMENTS);
    POST(fi_fetch_atomicv(a.ep, operands, NULL, 2, results, NULL, 2, to_b, AT, KEY, kind->datatype, FI_ATOMIC_READ,
                          NULL));
    check(kind, FI_ATOMIC_READ, ELEMENTS, 1);
    // An injected one has no completion; the read behind it finds what it has done.
    prepare(kind, FI_SUM, ELEMENTS);
    POST(fi_inject_atomic(a.ep, operand, ELEMENTS, to_b, AT, KEY, kind->datatype, FI_SUM));
    memcpy(before, after, BYTES);
    POST(
        fi_fetch_atomic(a.ep, NULL, ELEMENTS, NULL, result, NULL, to_b, AT, KEY, kind->datatype, FI_ATOMIC_READ, NULL));
    check(kind, FI_ATOMIC_READ, ELEMENTS, 1);
    // Results, and elements to compare with, of other numbers than the operands'.
    results[1].count = 3;
    EXPECT(-FI_EINVAL,
           fi_fetch_atomicv(a.ep, operands, NULL, 2, results, NULL, 2, to_b, AT, KEY, kind->datatype, FI_SUM, NULL));
    results[1].count = 2;
    EXPECT(-FI_EINVAL, fi_compare_atomicv(a.ep, operands, NULL, 2, comparands, NULL, 2, results, NULL, 2, to_b, AT, KEY,
                                          kind->datatype, FI_CSWAP, NULL));
    // More than one place at the target.
    message.rma_iov_count = 2;
    EXPECT(-FI_EINVAL, fi_atomicmsg(a.ep, &message, 0));
  }
  expect_idle(&a, 0.02);
  close_both();
}

const struct test atomic_cases[] = {
    {"every_atomic_operation_of_every_type", every_atomic_operation_of_every_type},
    {"atomic_operations_with_vectors_and_messages", atomic_operations_with_vectors_and_messages},
    {NULL, NULL},
};
