package main

import "testing"

func TestWithoutPort(t *testing.T) {
	for address, want := range map[string]string{"": "", "10.0.0.1": "10.0.0.1", "10.0.0.1:7746": "10.0.0.1", ":7746": "", "10.0.0.0/8:7746": "10.0.0.0/8", "[fe80::1]:7746": "[fe80::1]", "[fe80::1]": "[fe80::1]"} {
		if got := withoutPort(address); got != want {
			t.Errorf("%q becomes %q, want %q", address, got, want)
		}
	}
}
