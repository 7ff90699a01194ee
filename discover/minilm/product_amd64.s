#include "textflag.h"

// func tileAVX2(dst, a, strip, bias *float32, steps, stride, dstStride int)
//
// Y0 to Y7 are the tile, two for each row. A step takes 16 numbers of the strip and one
// of each row.
TEXT ·tileAVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ strip+16(FP), DX
	MOVQ bias+24(FP), BX
	MOVQ steps+32(FP), CX
	MOVQ stride+40(FP), R8
	MOVQ dstStride+48(FP), R9
	LEAQ (SI)(R8*2), R10      // the third row of a
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	VMOVAPS Y0, Y2
	VMOVAPS Y1, Y3
	VMOVAPS Y0, Y4
	VMOVAPS Y1, Y5
	VMOVAPS Y0, Y6
	VMOVAPS Y1, Y7

step:
	VMOVUPS      (DX), Y8
	VMOVUPS      32(DX), Y9
	VBROADCASTSS (SI), Y10
	VBROADCASTSS (SI)(R8*1), Y11
	VBROADCASTSS (R10), Y12
	VBROADCASTSS (R10)(R8*1), Y13
	VFMADD231PS  Y8, Y10, Y0
	VFMADD231PS  Y9, Y10, Y1
	VFMADD231PS  Y8, Y11, Y2
	VFMADD231PS  Y9, Y11, Y3
	VFMADD231PS  Y8, Y12, Y4
	VFMADD231PS  Y9, Y12, Y5
	VFMADD231PS  Y8, Y13, Y6
	VFMADD231PS  Y9, Y13, Y7
	ADDQ         $4, SI
	ADDQ         $4, R10
	ADDQ         $64, DX
	DECQ         CX
	JNZ          step

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ    R9, DI
	VMOVUPS Y2, (DI)
	VMOVUPS Y3, 32(DI)
	ADDQ    R9, DI
	VMOVUPS Y4, (DI)
	VMOVUPS Y5, 32(DI)
	ADDQ    R9, DI
	VMOVUPS Y6, (DI)
	VMOVUPS Y7, 32(DI)
	VZEROUPPER
	RET

// A step of one row: left and right take its number times the 16 numbers of each strip.
#define ROW(at, number, left, right) \
	VBROADCASTSS at, number;        \
	VFMADD231PS  Z16, number, left; \
	VFMADD231PS  Z17, number, right

#define STORE(left, right) \
	VMOVUPS left, (DI);    \
	VMOVUPS right, 64(DI); \
	ADDQ    R9, DI

// The registers of both: dst, a, the strips, steps, and the strides.
#define ARGUMENTS \
	MOVQ    dst+0(FP), DI;       \
	MOVQ    a+8(FP), SI;         \
	MOVQ    strip+16(FP), DX;   \
	MOVQ    bias+24(FP), BX;     \
	MOVQ    steps+32(FP), CX;    \
	MOVQ    stride+40(FP), R8;   \
	MOVQ    dstStride+48(FP), R9; \
	LEAQ    (R8)(R8*2), R11;     \
	MOVQ    CX, R12;             \
	SHLQ    $6, R12;             \
	ADDQ    DX, R12;             \
	VMOVUPS (BX), Z0;            \
	VMOVUPS 64(BX), Z1;          \
	VMOVAPS Z0, Z2;              \
	VMOVAPS Z1, Z3;              \
	VMOVAPS Z0, Z4;              \
	VMOVAPS Z1, Z5;              \
	VMOVAPS Z0, Z6;              \
	VMOVAPS Z1, Z7

// func tile8AVX512(dst, a, strip, bias *float32, steps, stride, dstStride int)
//
// Z0 to Z15 are the tile, two for each row.
TEXT ·tile8AVX512(SB), NOSPLIT, $0-56
	ARGUMENTS
	LEAQ    (SI)(R8*4), R10   // the fifth row of a
	VMOVAPS Z0, Z8
	VMOVAPS Z1, Z9
	VMOVAPS Z0, Z10
	VMOVAPS Z1, Z11
	VMOVAPS Z0, Z12
	VMOVAPS Z1, Z13
	VMOVAPS Z0, Z14
	VMOVAPS Z1, Z15

step:
	VMOVUPS (DX), Z16
	VMOVUPS (R12), Z17
	ROW((SI), Z18, Z0, Z1)
	ROW((SI)(R8*1), Z19, Z2, Z3)
	ROW((SI)(R8*2), Z20, Z4, Z5)
	ROW((SI)(R11*1), Z21, Z6, Z7)
	ROW((R10), Z22, Z8, Z9)
	ROW((R10)(R8*1), Z23, Z10, Z11)
	ROW((R10)(R8*2), Z24, Z12, Z13)
	ROW((R10)(R11*1), Z25, Z14, Z15)
	ADDQ    $4, SI
	ADDQ    $4, R10
	ADDQ    $64, DX
	ADDQ    $64, R12
	DECQ    CX
	JNZ     step

	STORE(Z0, Z1)
	STORE(Z2, Z3)
	STORE(Z4, Z5)
	STORE(Z6, Z7)
	STORE(Z8, Z9)
	STORE(Z10, Z11)
	STORE(Z12, Z13)
	STORE(Z14, Z15)
	VZEROUPPER
	RET

// func tile4AVX512(dst, a, strip, bias *float32, steps, stride, dstStride int)
TEXT ·tile4AVX512(SB), NOSPLIT, $0-56
	ARGUMENTS

step:
	VMOVUPS (DX), Z16
	VMOVUPS (R12), Z17
	ROW((SI), Z18, Z0, Z1)
	ROW((SI)(R8*1), Z19, Z2, Z3)
	ROW((SI)(R8*2), Z20, Z4, Z5)
	ROW((SI)(R11*1), Z21, Z6, Z7)
	ADDQ    $4, SI
	ADDQ    $64, DX
	ADDQ    $64, R12
	DECQ    CX
	JNZ     step

	STORE(Z0, Z1)
	STORE(Z2, Z3)
	STORE(Z4, Z5)
	STORE(Z6, Z7)
	VZEROUPPER
	RET
