// @ts-check
/** What several parts of the viewer go by: the version of the document, the sentinels of norms, the scale, the pace. */

/** @typedef {{x:number,y:number,w:number,h:number,nodes:number[],label:string,detail:string,kind:string,badges:[number,string][],written:number,part?:number,inside?:number,lowered?:number,open?:boolean}} Box inside: the box it lies in, -1 for none; lowered: how far it stands below its place in the drawing */
/** @typedef {{source:number,target:number,points:number[],ends?:[number,number][],edges?:number[],plain?:boolean,low?:number,high?:number,near?:number,away?:number}} Wire */
/** @typedef {{pass:number,norms:Float32Array,bad:Map<number,[number,number]>,values?:string[][]|null,said:string}} Frame */
/** @typedef {{norms:Float32Array,bad:Map<number,[number,number]>,values?:string[][]|null,nonfinite:any[],cursor:number,pass:number,running:boolean}} Picture */
/** @typedef {{structure:number,graph:number,pass:number,step:number,running:boolean,cursor:number,reached:number,finished:number,seconds:number,nodes:number,parameters:number,resting?:boolean,next?:number}} DeltaHeader */

export const VERSION = 6;
export const UNTOUCHED = -1; // no gradient came; below that, UNREADABLE: one came that could not be measured. No norm is below zero.
export const UNREADABLE = -2;
export const NOT_MEASURABLE = "not measurable";
export const SVG = "http://www.w3.org/2000/svg";
export const ENDS = [-5, 1]; // log10 of the norms at which the colour scale starts and ends where a run has none (theme.py)
export const LONGEST_LIVE_SERIES = 600;
export const PLAY_MILLISECONDS = 300;
export const CLOCK_MILLISECONDS = 100;
export const LATEST = 5; // seconds that a document of a running run may come late
export const LARGEST = 1.25; // how far a small graph is enlarged by itself: to be read from the last row
export const HEAD = 40;
export const BADGE = 15; // heights of a box without its badges, and of one badge (drawing.py)

