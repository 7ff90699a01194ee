package rest

// paging is the part of an input that asks for a page of a list.
type paging struct {
	Page     int `query:"page" minimum:"1" maximum:"1000000" default:"1" doc:"page, from 1"`
	PageSize int `query:"page_size" minimum:"1" maximum:"200" default:"50" doc:"entries a page"`
}

func (p paging) offset() int { return (p.Page - 1) * p.PageSize }

// of is the part of an answer that tells which page of how many entries it is.
func (p paging) of(total int) paged { return paged{total, p.Page, p.PageSize} }

type paged struct {
	TotalCount int `json:"total_count"`
	Page       int `json:"page"`
	PageSize   int `json:"page_size"`
}

// cut returns a page of a whole list.
func cut[T any](all []T, p paging) []T {
	from := min(p.offset(), len(all))
	return all[from:min(from+p.PageSize, len(all))]
}
