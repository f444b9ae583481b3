package object

import "testing"

// What succeeds after trouble lets those go on that come to wait a little later. A failure ends that.
func TestBudgetSpare(t *testing.T) {
	b := newBudget()
	for i := range budgetLeast {
		if !b.take() {
			t.Fatalf("retry %d is delayed", i)
		}
	}
	if b.take() {
		t.Error("a retry beyond the budget is not delayed")
	}
	b.succeeded()
	for i, want := range []bool{true, true, false} {
		if b.take() != want {
			t.Errorf("retry %d after a success: delayed is %t", i, want)
		}
	}
	b.succeeded()
	b.failed()
	if b.take() {
		t.Error("a success before a failure lets one go on")
	}
}
