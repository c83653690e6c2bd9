// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory regions.

use std::ffi::{c_int, c_void};

use crate::bindings::*;
use crate::edge::unsupported;

pub(crate) static OPS: fi_ops_mr =
    fi_ops_mr { size: size_of::<fi_ops_mr>(), reg: Some(no_reg), regv: Some(no_regv), regattr: Some(no_regattr) };
unsupported! {
    no_reg(*mut fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int;
    no_regv(*mut fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int;
    no_regattr(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int;
}
