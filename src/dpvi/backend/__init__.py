"""What depends on the compiler and the device."""
