//! Where in Go's code only the return address is on the stack.
//!
//! Go keeps frame pointers, but functions without a frame (leaves, `runtime.memmove`) set none. Neither do the first
//! and last instructions of the others. There the frame pointer is the caller's, so unwinding by it skips the caller.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use super::GoTable;
use super::function::GoFunction;
use super::image::{Image, MappedImage};
use super::values::ReadAllowance;

/// Bytes of values read from one file: twice what the largest Go programs need.
const MAX_BYTES: usize = 512 << 20;
/// Bytes that are read at a time, and the number of these pages that are kept.
const PAGE: usize = 16 << 10;
const PAGES: usize = 8;

/// What is on the stack at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnStack {
    /// The return address is on top.
    ReturnAddress,
    /// The function has a frame, or nothing is known.
    Frame,
}

impl GoTable {
    /// Passes the code of all functions to `each`, in pieces that follow each other.
    pub(crate) fn stacks<E>(
        &self,
        image: &dyn Image,
        mut each: impl FnMut(Range<u64>, OnStack) -> ControlFlow<E>,
    ) -> ControlFlow<E> {
        let image = Paged { image, base: self.header.base, pages: RefCell::default() };
        let allowance = ReadAllowance::of(MAX_BYTES);
        for index in 0..self.header.functions {
            let Some(function) = GoFunction::numbered(&image, &self.header, &self.module, index) else {
                continue;
            };
            let mut at = function.entry;
            for value in
                function.values(&image, &self.header, function.depths, &allowance).into_iter().flatten()
            {
                let end = value.end.min(function.end);
                let on_stack = if value.value == 0 { OnStack::ReturnAddress } else { OnStack::Frame };
                if end > at {
                    each(at..end, on_stack)?;
                }
                at = end.max(at);
            }
            if function.end > at {
                each(at..function.end, OnStack::Frame)?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The same image with a cache, because much of it is read in order.
struct Paged<'i> {
    image: &'i dyn Image,
    /// Where the first page begins.
    base: u64,
    /// The page that was read last stands last.
    pages: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl Image for Paged<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some(from) = address.checked_sub(self.base) else { return self.image.read(address, buffer) };
        let (number, inside) = (from / PAGE as u64, (from % PAGE as u64) as usize);
        let mut pages = self.pages.borrow_mut();
        if let Some(at) = pages.iter().position(|page| page.0 == number) {
            let last = pages.len() - 1;
            pages.swap(at, last);
        } else {
            let mut bytes = vec![0; PAGE];
            let got = self.image.read(address - inside as u64, &mut bytes);
            bytes.truncate(got);
            if pages.len() == PAGES {
                pages.remove(0);
            }
            pages.push((number, bytes));
        }
        let page = pages.last().map_or(&[][..], |(_, bytes)| bytes);
        match page.get(inside..inside + buffer.len()) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                buffer.len()
            }
            None => self.image.read(address, buffer),
        }
    }

    fn mapped(&self) -> Vec<MappedImage> {
        self.image.mapped()
    }

    fn is_code(&self, addresses: Range<u64>) -> bool {
        self.image.is_code(addresses)
    }

    fn section(&self, name: &str) -> Option<u64> {
        self.image.section(name)
    }

    fn relocations(&self) -> Option<Range<u64>> {
        self.image.relocations()
    }

    fn relative(&self) -> u32 {
        self.image.relative()
    }
}
