//! lockdown tests
