// Package bookshop is a small HTTP service with an OpenAPI document for trying Toolkeep: a searchable catalogue,
// orders behind an API key, a slow report, and an endpoint that fails on request.
//
// Everything is in memory: orders end with the handler.
package bookshop

import (
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

//go:embed openapi.yaml
var document []byte

// Document returns the OpenAPI document of the service, as served at /openapi.yaml.
func Document() []byte { return document }

// DefaultKey is the API key for orders if BOOKSHOP_KEY is not set.
const DefaultKey = "bookshop-demo-key"

// Handler makes a separate shop. Its API key is BOOKSHOP_KEY of the environment, or DefaultKey.
func Handler() http.Handler {
	key := os.Getenv("BOOKSHOP_KEY")
	if key == "" {
		key = DefaultKey
	}
	s := &shop{key: key, stock: make(map[string]int), repeated: make(map[string]placed), failures: make(map[string]int)}
	for _, b := range books {
		s.stock[b.ID] = b.Stock
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /books", s.search)
	mux.HandleFunc("GET /books/{book_id}", s.book)
	mux.HandleFunc("GET /orders", s.withKey(s.listOrders))
	mux.HandleFunc("POST /orders", s.withKey(s.placeOrder))
	mux.HandleFunc("GET /orders/{order_id}", s.withKey(s.order))
	mux.HandleFunc("POST /orders/{order_id}/cancel", s.withKey(s.cancelOrder))
	mux.HandleFunc("GET /reports/sales", s.withKey(s.salesReport))
	mux.HandleFunc("GET /weather-of-the-day", s.unsteady)
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		w.Write(document)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusNotFound, "there is nothing at this address; see /openapi.yaml")
	})
	return mux
}

type shop struct {
	key string

	mu       sync.Mutex
	stock    map[string]int
	orders   []*Order
	repeated map[string]placed // by idempotency key
	failures map[string]int    // of the unsteady endpoint, by name
}

// placed is what an idempotency key stands for.
type placed struct {
	request string
	order   *Order
}

// Order is one order.
type Order struct {
	ID         string    `json:"id"`
	Status     string    `json:"status"` // placed, cancelled
	Customer   string    `json:"customer"`
	Lines      []Line    `json:"lines"`
	TotalCents int       `json:"total_cents"`
	Note       string    `json:"note,omitempty"`
	PlacedAt   time.Time `json:"placed_at"`
}

// Line is one book of an order.
type Line struct {
	BookID   string `json:"book_id"`
	Quantity int    `json:"quantity"`
}

const (
	maxBody   = 64 << 10
	maxOrders = 10_000
)

func (s *shop) withKey(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("X-API-Key")), []byte(s.key)) != 1 {
			problem(w, http.StatusUnauthorized, "the header X-API-Key is missing or wrong")
			return
		}
		next(w, r)
	}
}

func (s *shop) listOrders(w http.ResponseWriter, r *http.Request) {
	limit, offset, ok := page(w, r)
	if !ok {
		return
	}
	customer, status := r.URL.Query().Get("customer"), r.URL.Query().Get("status")
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []*Order{}
	for _, o := range s.orders {
		if (customer == "" || o.Customer == customer) && (status == "" || o.Status == status) {
			found = append(found, o)
		}
	}
	answer(w, http.StatusOK, map[string]any{"orders": cut(found, limit, offset), "total": len(found)})
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.find(r.PathValue("order_id")); o != nil {
		answer(w, http.StatusOK, o)
		return
	}
	problem(w, http.StatusNotFound, "there is no order with this id")
}

func (s *shop) find(id string) *Order {
	for _, o := range s.orders {
		if o.ID == id {
			return o
		}
	}
	return nil
}

func (s *shop) placeOrder(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		problem(w, http.StatusRequestEntityTooLarge, "the order is too large")
		return
	}
	var wish struct {
		Customer string `json:"customer"`
		Lines    []Line `json:"lines"`
		Note     string `json:"note"`
	}
	if err := json.Unmarshal(raw, &wish); err != nil {
		problem(w, http.StatusBadRequest, "the body is not an order in JSON")
		return
	}
	if wish.Customer == "" || len(wish.Lines) == 0 || len(wish.Lines) > 20 {
		problem(w, http.StatusUnprocessableEntity, "an order needs a customer and 1 to 20 lines")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if old, ok := s.repeated[key]; ok && key != "" {
		if old.request != string(raw) {
			problem(w, http.StatusConflict, "this Idempotency-Key was used for another order")
			return
		}
		answer(w, http.StatusCreated, old.order)
		return
	}
	if len(s.orders) >= maxOrders {
		problem(w, http.StatusConflict, "the shop has taken all the orders it can remember")
		return
	}
	o := &Order{Status: "placed", Customer: wish.Customer, Lines: wish.Lines, Note: wish.Note, PlacedAt: time.Now().UTC()}
	if status, err := s.take(o); err != nil {
		problem(w, status, err.Error())
		return
	}
	o.ID = "order-" + strconv.Itoa(1001+len(s.orders))
	s.orders = append(s.orders, o)
	if key != "" {
		s.repeated[key] = placed{string(raw), o}
	}
	answer(w, http.StatusCreated, o)
}

// take takes the books of an order from stock, all or none.
func (s *shop) take(o *Order) (status int, err error) {
	wanted := make(map[string]int)
	for _, l := range o.Lines {
		b := findBook(l.BookID)
		if b == nil {
			return http.StatusUnprocessableEntity, errors.New("there is no book with the id " + strconv.Quote(l.BookID))
		}
		if l.Quantity < 1 || l.Quantity > 100 {
			return http.StatusUnprocessableEntity, errors.New("a quantity is from 1 to 100")
		}
		wanted[b.ID] += l.Quantity
		o.TotalCents += l.Quantity * b.PriceCents
	}
	for id, n := range wanted {
		if s.stock[id] < n {
			return http.StatusConflict, errors.New("there are only " + strconv.Itoa(s.stock[id]) + " of the book " + id + " left")
		}
	}
	for id, n := range wanted {
		s.stock[id] -= n
	}
	return 0, nil
}

func (s *shop) cancelOrder(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.find(r.PathValue("order_id"))
	switch {
	case o == nil:
		problem(w, http.StatusNotFound, "there is no order with this id")
		return
	case o.Status == "cancelled":
		problem(w, http.StatusConflict, "the order is cancelled already")
		return
	}
	o.Status = "cancelled"
	for _, l := range o.Lines {
		s.stock[l.BookID] += l.Quantity
	}
	answer(w, http.StatusOK, o)
}

// salesReport takes delay_ms, or until the caller leaves.
func (s *shop) salesReport(w http.ResponseWriter, r *http.Request) {
	delay, ok := number(w, r, "delay_ms", 0, 0, 60_000)
	if !ok {
		return
	}
	t := time.NewTimer(time.Duration(delay) * time.Millisecond)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return
	case <-t.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sold, cents, orders := make(map[string]int), 0, 0
	for _, o := range s.orders {
		if o.Status != "placed" {
			continue
		}
		orders++
		cents += o.TotalCents
		for _, l := range o.Lines {
			sold[l.BookID] += l.Quantity
		}
	}
	answer(w, http.StatusOK, map[string]any{"orders": orders, "total_cents": cents, "sold": sold})
}

// unsteady fails the requested number of times before it succeeds.
func (s *shop) unsteady(w http.ResponseWriter, r *http.Request) {
	times, ok := number(w, r, "fail_times", 0, 0, 100)
	if !ok {
		return
	}
	status, ok := number(w, r, "fail_with", http.StatusServiceUnavailable, 400, 599)
	if !ok {
		return
	}
	after, ok := number(w, r, "retry_after_s", 0, 0, 60)
	if !ok {
		return
	}
	run := r.URL.Query().Get("run")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failures) > 1000 {
		clear(s.failures)
	}
	if s.failures[run] < times {
		s.failures[run]++
		if after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(after))
		}
		problem(w, status, "failure "+strconv.Itoa(s.failures[run])+" of "+strconv.Itoa(times)+", as asked")
		return
	}
	delete(s.failures, run)
	answer(w, http.StatusOK, map[string]any{"summary": "Good weather for staying in with a book.", "failures_before": times})
}

// number parses a whole number from the query.
func number(w http.ResponseWriter, r *http.Request, name string, fallback, low, high int) (int, bool) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return fallback, true
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		problem(w, http.StatusBadRequest, name+" must be a whole number from "+strconv.Itoa(low)+" to "+strconv.Itoa(high))
		return 0, false
	}
	return n, true
}

func page(w http.ResponseWriter, r *http.Request) (limit, offset int, ok bool) {
	if limit, ok = number(w, r, "limit", 20, 1, 100); !ok {
		return 0, 0, false
	}
	offset, ok = number(w, r, "offset", 0, 0, 1_000_000)
	return limit, offset, ok
}

func cut[T any](all []T, limit, offset int) []T {
	offset = min(offset, len(all))
	return all[offset:min(offset+limit, len(all))]
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // the client may be gone; the error is of no use
}

// problem answers with a problem document (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"status": status, "title": http.StatusText(status), "detail": detail})
}
