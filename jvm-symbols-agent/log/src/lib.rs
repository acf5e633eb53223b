#![no_std]
//! log
