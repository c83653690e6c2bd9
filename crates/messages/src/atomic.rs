// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic operations: their effect on each element.
//!
//! Elements are in host byte order, which must be the same at both ends, and need not be aligned. Peers' operations are
//! atomic with respect to each other, because one thread of the target applies them. With respect to the processor's
//! atomic instructions, with which MPI libraries lock their own memory, only operations on one aligned element of 4 or
//! 8 bytes are atomic.

/// The new value of each element at the target. Integers wrap around; *logical* operations give 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AtomicOperation {
    /// The smaller of element and operand.
    Min,
    /// The larger of element and operand.
    Max,
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// Whether either is non-zero.
    LogicalOr,
    /// Whether both are non-zero.
    LogicalAnd,
    /// Bitwise or.
    BitOr,
    /// Bitwise and.
    BitAnd,
    /// Whether exactly one is non-zero.
    LogicalXor,
    /// Bitwise exclusive or.
    BitXor,
    /// The element itself: only fetched.
    Read,
    /// The operand.
    Write,
    /// The operand, if the comparison value is equal to the element.
    CompareSwap,
    /// The operand, if the comparison value is not equal to the element.
    CompareSwapNotEqual,
    /// The operand, if the comparison value is at most the element.
    CompareSwapLessOrEqual,
    /// The operand, if the comparison value is less than the element.
    CompareSwapLess,
    /// The operand, if the comparison value is at least the element.
    CompareSwapGreaterOrEqual,
    /// The operand, if the comparison value is greater than the element.
    CompareSwapGreater,
    /// The operand where the comparison value has bits set, the element elsewhere.
    MaskedSwap,
}

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AtomicType {
    /// A signed integer of 8 bits.
    I8,
    /// An unsigned integer of 8 bits.
    U8,
    /// A signed integer of 16 bits.
    I16,
    /// An unsigned integer of 16 bits.
    U16,
    /// A signed integer of 32 bits.
    I32,
    /// An unsigned integer of 32 bits.
    U32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 64 bits.
    U64,
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 64 bits.
    F64,
    /// Real and imaginary part, 32 bits each.
    ComplexF32,
    /// Real and imaginary part, 64 bits each.
    ComplexF64,
}

use AtomicOperation as Op;
use AtomicType as Type;

const OPERATIONS: [Op; 19] = [
    Op::Min,
    Op::Max,
    Op::Sum,
    Op::Product,
    Op::LogicalOr,
    Op::LogicalAnd,
    Op::BitOr,
    Op::BitAnd,
    Op::LogicalXor,
    Op::BitXor,
    Op::Read,
    Op::Write,
    Op::CompareSwap,
    Op::CompareSwapNotEqual,
    Op::CompareSwapLessOrEqual,
    Op::CompareSwapLess,
    Op::CompareSwapGreaterOrEqual,
    Op::CompareSwapGreater,
    Op::MaskedSwap,
];

const TYPES: [Type; 12] = [
    Type::I8,
    Type::U8,
    Type::I16,
    Type::U16,
    Type::I32,
    Type::U32,
    Type::I64,
    Type::U64,
    Type::F32,
    Type::F64,
    Type::ComplexF32,
    Type::ComplexF64,
];

impl AtomicOperation {
    /// All values.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &OPERATIONS
    }

    /// Whether it takes a second operand: a comparison value or a mask.
    #[must_use]
    pub const fn compares(self) -> bool {
        self as u8 >= Self::CompareSwap as u8
    }

    /// The value with this number in a header.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        OPERATIONS.get(usize::from(number)).copied()
    }
}

impl AtomicType {
    /// All values.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &TYPES
    }

    /// Size of an element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::ComplexF32 => 8,
            Self::ComplexF64 => 16,
        }
    }

    /// Whether the type supports an operation: bitwise ones need integers, and complex numbers have no order.
    #[must_use]
    pub const fn supports(self, operation: AtomicOperation) -> bool {
        let is_bitwise = matches!(operation, Op::BitOr | Op::BitAnd | Op::BitXor | Op::MaskedSwap);
        let is_ordering = matches!(
            operation,
            Op::Min
                | Op::Max
                | Op::CompareSwapLessOrEqual
                | Op::CompareSwapLess
                | Op::CompareSwapGreaterOrEqual
                | Op::CompareSwapGreater
        );
        match self {
            Self::F32 | Self::F64 => !is_bitwise,
            Self::ComplexF32 | Self::ComplexF64 => !is_bitwise && !is_ordering,
            _ => true,
        }
    }

    /// The value with this number in a header.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        TYPES.get(usize::from(number)).copied()
    }
}

/// Applies an operation, which the type must support, to all elements. `operand` and `compare` are as long as
/// `elements`, or empty if the operation does not use them.
pub(crate) fn apply(operation: Op, datatype: Type, elements: &mut [u8], operand: &[u8], compare: &[u8]) {
    if operation == Op::Read {
        return;
    }
    let size = datatype.bytes();
    for (index, element) in elements.chunks_exact_mut(size).enumerate() {
        let range = index * size..(index + 1) * size;
        let operand = &operand[range.clone()];
        // Ignored by operations without a comparison.
        let compare = compare.get(range).unwrap_or(operand);
        match datatype {
            Type::I8 => i8::update(operation, element, operand, compare),
            Type::U8 => u8::update(operation, element, operand, compare),
            Type::I16 => i16::update(operation, element, operand, compare),
            Type::U16 => u16::update(operation, element, operand, compare),
            Type::I32 => i32::update(operation, element, operand, compare),
            Type::U32 => u32::update(operation, element, operand, compare),
            Type::I64 => i64::update(operation, element, operand, compare),
            Type::U64 => u64::update(operation, element, operand, compare),
            Type::F32 => f32::update(operation, element, operand, compare),
            Type::F64 => f64::update(operation, element, operand, compare),
            Type::ComplexF32 => Complex::<f32>::update(operation, element, operand, compare),
            Type::ComplexF64 => Complex::<f64>::update(operation, element, operand, compare),
        }
    }
}

/// Arithmetic of an element type.
trait Element: Copy + PartialOrd {
    fn read(bytes: &[u8]) -> Self;
    fn write(self, into: &mut [u8]);
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// 1 or 0.
    fn from_bool(is_true: bool) -> Self;
    /// A bitwise operation with `other`, under `mask` for a masked swap.
    fn bitwise(self, operation: Op, other: Self, mask: Self) -> Self;

    fn is_true(self) -> bool {
        self != Self::from_bool(false)
    }

    fn update(operation: Op, element: &mut [u8], operand: &[u8], compare: &[u8]) {
        let (old, new, compare) = (Self::read(element), Self::read(operand), Self::read(compare));
        let new_if = |condition| if condition { new } else { old };
        let changed = match operation {
            Op::Min => new_if(new < old),
            Op::Max => new_if(new > old),
            Op::Sum => old.plus(new),
            Op::Product => old.times(new),
            Op::LogicalOr => Self::from_bool(old.is_true() || new.is_true()),
            Op::LogicalAnd => Self::from_bool(old.is_true() && new.is_true()),
            Op::LogicalXor => Self::from_bool(old.is_true() != new.is_true()),
            Op::BitOr | Op::BitAnd | Op::BitXor | Op::MaskedSwap => old.bitwise(operation, new, compare),
            Op::Read => old,
            Op::Write => new,
            Op::CompareSwap => new_if(compare == old),
            Op::CompareSwapNotEqual => new_if(compare != old),
            Op::CompareSwapLessOrEqual => new_if(compare <= old),
            Op::CompareSwapLess => new_if(compare < old),
            Op::CompareSwapGreaterOrEqual => new_if(compare >= old),
            Op::CompareSwapGreater => new_if(compare > old),
        };
        changed.write(element);
    }
}

macro_rules! integers {
    ($($integer:ty)*) => { $(
        impl Element for $integer {
            fn read(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("an element's bytes"))
            }
            fn write(self, into: &mut [u8]) {
                into.copy_from_slice(&self.to_ne_bytes());
            }
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn from_bool(is_true: bool) -> Self {
                Self::from(is_true)
            }
            fn bitwise(self, operation: Op, other: Self, mask: Self) -> Self {
                match operation {
                    Op::BitOr => self | other,
                    Op::BitAnd => self & other,
                    Op::BitXor => self ^ other,
                    _ => (other & mask) | (self & !mask),
                }
            }
        }
    )* };
}

macro_rules! floats {
    ($($float:ty)*) => { $(
        impl Element for $float {
            fn read(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("an element's bytes"))
            }
            fn write(self, into: &mut [u8]) {
                into.copy_from_slice(&self.to_ne_bytes());
            }
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
            fn from_bool(is_true: bool) -> Self {
                if is_true { 1.0 } else { 0.0 }
            }
            fn bitwise(self, _: Op, _: Self, _: Self) -> Self {
                unreachable!("checked by `AtomicType::supports`")
            }
        }
    )* };
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);
floats!(f32 f64);

/// A complex number: real and imaginary part.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Complex<T>(T, T);

impl<T: Element + std::ops::Sub<Output = T>> Element for Complex<T> {
    fn read(bytes: &[u8]) -> Self {
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        Self(T::read(real), T::read(imaginary))
    }

    fn write(self, into: &mut [u8]) {
        let (real, imaginary) = into.split_at_mut(into.len() / 2);
        self.0.write(real);
        self.1.write(imaginary);
    }

    fn plus(self, other: Self) -> Self {
        Self(self.0.plus(other.0), self.1.plus(other.1))
    }

    fn times(self, other: Self) -> Self {
        let (Self(a, b), Self(c, d)) = (self, other);
        Self(a.times(c) - b.times(d), a.times(d).plus(b.times(c)))
    }

    fn from_bool(is_true: bool) -> Self {
        Self(T::from_bool(is_true), T::from_bool(false))
    }

    fn bitwise(self, _: Op, _: Self, _: Self) -> Self {
        unreachable!("checked by `AtomicType::supports`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied<const N: usize>(
        operation: Op,
        datatype: Type,
        element: [u8; N],
        operand: [u8; N],
        compare: [u8; N],
    ) -> [u8; N] {
        let mut element = element;
        apply(operation, datatype, &mut element, &operand, if operation.compares() { &compare } else { &[] });
        element
    }

    #[test]
    fn operations_and_types_round_trip_through_numbers() {
        for (number, operation) in (0..).zip(OPERATIONS) {
            assert!(operation as u8 == number && Op::from_number(number) == Some(operation));
        }
        for (number, datatype) in (0..).zip(TYPES) {
            assert!(datatype as u8 == number && Type::from_number(number) == Some(datatype));
        }
        assert_eq!((Op::from_number(19), Type::from_number(12)), (None, None));
    }

    /// Each operation's result on element 12 with operand 10 and comparison values 12, 11 and 13, computed by hand.
    #[test]
    fn integer_operations_have_the_expected_results() {
        let table: [(Op, [i32; 3]); 19] = [
            (Op::Min, [10; 3]),
            (Op::Max, [12; 3]),
            (Op::Sum, [22; 3]),
            (Op::Product, [120; 3]),
            (Op::LogicalOr, [1; 3]),
            (Op::LogicalAnd, [1; 3]),
            (Op::BitOr, [14; 3]),
            (Op::BitAnd, [8; 3]),
            (Op::LogicalXor, [0; 3]),
            (Op::BitXor, [6; 3]),
            (Op::Read, [12; 3]),
            (Op::Write, [10; 3]),
            (Op::CompareSwap, [10, 12, 12]),
            (Op::CompareSwapNotEqual, [12, 10, 10]),
            (Op::CompareSwapLessOrEqual, [10, 10, 12]),
            (Op::CompareSwapLess, [12, 10, 12]),
            (Op::CompareSwapGreaterOrEqual, [10, 12, 10]),
            (Op::CompareSwapGreater, [12, 12, 10]),
            // 1100 with 1010 under 1100, 1011, 1101.
            (Op::MaskedSwap, [0b1000, 0b1110, 0b1000]),
        ];
        for (operation, expected) in table {
            for (compare, expected) in [12, 11, 13].into_iter().zip(expected) {
                let [a, b, c] = [12, 10, compare].map(i32::to_ne_bytes);
                assert_eq!(i32::from_ne_bytes(applied(operation, Type::I32, a, b, c)), expected, "{operation:?}");
                let [a, b, c] = [12, 10, compare].map(|number| (number as u64).to_ne_bytes());
                assert_eq!(
                    u64::from_ne_bytes(applied(operation, Type::U64, a, b, c)),
                    expected as u64,
                    "{operation:?}"
                );
                if Type::F64.supports(operation) {
                    let [a, b, c] = [12, 10, compare].map(|number| f64::from(number).to_ne_bytes());
                    let changed = f64::from_ne_bytes(applied(operation, Type::F64, a, b, c));
                    assert!((changed - f64::from(expected)).abs() < 1e-9, "{operation:?}");
                }
            }
        }
    }

    #[test]
    fn signed_wrapping_and_complex_operations() {
        assert_eq!(applied(Op::Min, Type::I8, [1], [0xff], [0]), [0xff]);
        assert_eq!(applied(Op::Min, Type::U8, [1], [0xff], [0]), [1]);
        assert_eq!(applied(Op::Sum, Type::U16, [0xff, 0xff], 1u16.to_ne_bytes(), [0; 2]), [0, 0]);
        assert_eq!(applied(Op::Sum, Type::I8, [127], [1], [0]), [0x80]);
        let complex = |real: f32, imaginary: f32| {
            let mut bytes = [0; 8];
            Complex(real, imaginary).write(&mut bytes);
            bytes
        };
        let product = applied(Op::Product, Type::ComplexF32, complex(1.0, 2.0), complex(3.0, 4.0), [0; 8]);
        assert_eq!(product, complex(-5.0, 10.0));
        let swapped = applied(Op::CompareSwap, Type::ComplexF32, product, complex(0.0, 0.0), complex(-5.0, 10.0));
        assert_eq!(swapped, complex(0.0, 0.0));
        assert_eq!(applied(Op::LogicalOr, Type::ComplexF32, swapped, complex(0.0, 1.0), [0; 8]), complex(1.0, 0.0));
    }

    /// Proves that every operation a type supports applies to several elements at once.
    #[test]
    fn every_supported_operation_applies() {
        for datatype in TYPES {
            for operation in OPERATIONS.into_iter().filter(|operation| datatype.supports(*operation)) {
                let mut elements = vec![0; 3 * datatype.bytes()];
                let operand = vec![0x40; elements.len()];
                apply(operation, datatype, &mut elements, &operand, &operand);
                let (first, rest) = elements.split_at(datatype.bytes());
                assert!(rest.chunks(datatype.bytes()).all(|other| other == first), "{operation:?} {datatype:?}");
            }
        }
    }
}
