package bookshop

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Book is one title of the catalogue.
type Book struct {
	ID         string   `json:"id"`
	Title      string   `json:"title"`
	Author     string   `json:"author"`
	Year       int      `json:"year"`
	Genres     []string `json:"genres"`
	PriceCents int      `json:"price_cents"`
	Stock      int      `json:"stock"`
}

var books = []Book{
	{"frankenstein", "Frankenstein", "Mary Shelley", 1818, []string{"horror", "science-fiction"}, 899, 12},
	{"pride-and-prejudice", "Pride and Prejudice", "Jane Austen", 1813, []string{"romance", "classic"}, 799, 20},
	{"moby-dick", "Moby-Dick", "Herman Melville", 1851, []string{"adventure", "classic"}, 1199, 5},
	{"alice", "Alice's Adventures in Wonderland", "Lewis Carroll", 1865, []string{"fantasy", "children"}, 699, 30},
	{"around-the-world", "Around the World in Eighty Days", "Jules Verne", 1872, []string{"adventure"}, 849, 8},
	{"treasure-island", "Treasure Island", "Robert Louis Stevenson", 1883, []string{"adventure", "children"}, 749, 14},
	{"dracula", "Dracula", "Bram Stoker", 1897, []string{"horror", "classic"}, 999, 0},
	{"time-machine", "The Time Machine", "H. G. Wells", 1895, []string{"science-fiction"}, 649, 9},
	{"sherlock-holmes", "The Adventures of Sherlock Holmes", "Arthur Conan Doyle", 1892, []string{"crime", "classic"}, 949, 17},
	{"wuthering-heights", "Wuthering Heights", "Emily Brontë", 1847, []string{"romance", "classic"}, 829, 6},
}

func findBook(id string) *Book {
	for i := range books {
		if books[i].ID == id {
			return &books[i]
		}
	}
	return nil
}

// now returns the book with its current stock.
func (s *shop) now(b Book) Book {
	b.Stock = s.stock[b.ID]
	return b
}

func (s *shop) book(w http.ResponseWriter, r *http.Request) {
	b := findBook(r.PathValue("book_id"))
	if b == nil {
		problem(w, http.StatusNotFound, "there is no book with this id; search for it first")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, http.StatusOK, s.now(*b))
}

func (s *shop) search(w http.ResponseWriter, r *http.Request) {
	limit, offset, ok := page(w, r)
	if !ok {
		return
	}
	most, ok := number(w, r, "max_price_cents", 0, 1, 1_000_000)
	if !ok {
		return
	}
	q := r.URL.Query()
	words := strings.Fields(strings.ToLower(q.Get("q")))
	inStock, err := strconv.ParseBool(cmp.Or(q.Get("in_stock"), "false"))
	if err != nil {
		problem(w, http.StatusBadRequest, "in_stock must be true or false")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []Book{}
	for _, b := range books {
		b = s.now(b)
		if matches(b, words, q["genre"]) && (most == 0 || b.PriceCents <= most) && (!inStock || b.Stock > 0) {
			found = append(found, b)
		}
	}
	switch sort := cmp.Or(q.Get("sort"), "title"); sort {
	case "title":
		slices.SortFunc(found, func(a, b Book) int { return strings.Compare(a.Title, b.Title) })
	case "price":
		slices.SortFunc(found, func(a, b Book) int { return cmp.Compare(a.PriceCents, b.PriceCents) })
	case "year":
		slices.SortFunc(found, func(a, b Book) int { return cmp.Compare(a.Year, b.Year) })
	default:
		problem(w, http.StatusBadRequest, "sort must be title, price or year")
		return
	}
	answer(w, http.StatusOK, map[string]any{"books": cut(found, limit, offset), "total": len(found)})
}

// matches requires every word in title or author, and one of the genres.
func matches(b Book, words, genres []string) bool {
	text := strings.ToLower(b.Title + " " + b.Author)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	if len(genres) == 0 {
		return true
	}
	return slices.ContainsFunc(genres, func(g string) bool { return slices.Contains(b.Genres, g) })
}
