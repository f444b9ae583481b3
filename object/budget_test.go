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
	if !b.take() || !b.take() || b.take() {
		t.Error("a success does not let two go on")
	}
	b.succeeded()
	b.failed()
	if b.take() {
		t.Error("a success before a failure lets one go on")
	}
}
